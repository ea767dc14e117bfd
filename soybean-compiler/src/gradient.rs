//! Reverse-mode differentiation of a graph.

use std::collections::BTreeMap;

use soybean_plan::{Combine, DType, ScalarProgram, Shape};

use crate::{
    graph::{Graph, Source},
    operator::{GradientBuilder, Operator, OperatorCall},
    operators::{
        elementwise::{Elementwise, all_dims},
        reduce::Reduce,
    },
    scalar,
    signature::FactorId,
    value::Value,
};

/// The graph during differentiation.
struct Differentiation<'a> {
    /// The graph, to which gradients are added.
    graph: &'a mut Graph,
    /// For each tensor of the forward graph, whether it depends on a parameter.
    depends_on_parameters: &'a [bool],
}

impl GradientBuilder for Differentiation<'_> {
    fn shape(&self, value: Value) -> Shape {
        self.graph.shape(value)
    }

    fn needs_gradient(&self, value: Value) -> bool {
        self.depends_on_parameters[value.index()]
    }

    fn add(&mut self, operator: Operator, operands: &[Value]) -> Value {
        self.graph.add(operator, operands)
    }

    fn add_elementwise(
        &mut self,
        extents: Shape,
        operands: &[Vec<FactorId>],
        program: ScalarProgram,
        values: &[Value],
    ) -> Value {
        add_elementwise(self.graph, extents, operands, &program, values)
    }

    fn sum_to(&mut self, value: Value, kept: &[FactorId]) -> Value {
        let shape = self.graph.shape(value);
        if kept == all_dims(&shape) {
            return value;
        }
        self.graph.add(Reduce::new(shape, Combine::Sum, kept.to_vec()).into(), &[value])
    }
}

/// Adds a map over those of the given operands that its program reads, each value once for each way in which it lies.
pub(crate) fn add_elementwise(
    graph: &mut Graph,
    extents: Shape,
    operands: &[Vec<FactorId>],
    program: &ScalarProgram,
    values: &[Value],
) -> Value {
    let mut kept: Vec<(Value, &Vec<FactorId>)> = Vec::new();
    let mut renumbered = vec![0; operands.len()];
    for input in scalar::inputs(program) {
        let operand = (values[input as usize], &operands[input as usize]);
        let position = kept.iter().position(|it| *it == operand).unwrap_or_else(|| {
            kept.push(operand);
            kept.len() - 1
        });
        renumbered[input as usize] = u8::try_from(position).expect("maps have few inputs");
    }
    let program = scalar::renumber(program, &renumbered);
    let (values, operands): (Vec<Value>, Vec<Vec<FactorId>>) =
        kept.into_iter().map(|(value, ids)| (value, ids.clone())).unzip();
    graph.add(Elementwise { extents, operands, program, dtype: DType::F32 }.into(), &values)
}

/// Adds to the graph the gradients of a scalar loss, times the number that `seed` gives, by each of the parameters; none for those that it does not depend on.
pub(crate) fn differentiate(
    graph: &mut Graph,
    loss: Value,
    parameters: &[Value],
    seed: &ScalarProgram,
) -> Vec<Option<Value>> {
    let depends_on_parameters = depends_on_parameters(graph);
    let mut gradients: BTreeMap<Value, Value> = BTreeMap::new();
    let seed = add_elementwise(graph, Shape::new(&[]), &[], seed, &[]);
    gradients.insert(loss, seed);
    let forward: Vec<Value> = graph.values().filter(|&it| it <= loss).collect();
    for value in forward.into_iter().rev() {
        let Some(&gradient) = gradients.get(&value) else { continue };
        let Some(operator) = graph.operator(value).cloned() else { continue };
        graph.set_origin(graph.node(value).origin);
        let operands = graph.operands(value);
        let call = OperatorCall { operands: &operands, result: value, gradient };
        let mut builder = Differentiation { graph, depends_on_parameters: &depends_on_parameters };
        let terms = operator.gradient(&call, &mut builder);
        for (&operand, term) in operands.iter().zip(terms) {
            let Some(term) = term else { continue };
            let sum = match gradients.get(&operand) {
                None => term,
                Some(&sum) => add(graph, sum, term),
            };
            gradients.insert(operand, sum);
        }
    }
    parameters.iter().map(|it| gradients.get(it).copied()).collect()
}

fn depends_on_parameters(graph: &Graph) -> Vec<bool> {
    let mut depends = vec![false; graph.n_values()];
    for value in graph.values() {
        depends[value.index()] = matches!(graph.node(value).source, Source::Parameter(_))
            || graph.operands(value).iter().any(|it| depends[it.index()]);
    }
    depends
}

/// The sum of two tensors of one shape.
pub(crate) fn add(graph: &mut Graph, x: Value, y: Value) -> Value {
    let shape = graph.shape(x);
    let space = all_dims(&shape);
    add_elementwise(
        graph,
        shape,
        &[space.clone(), space],
        &scalar::binary(soybean_plan::Binary::Add),
        &[x, y],
    )
}
