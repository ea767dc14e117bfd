//! Reverse-mode differentiation of a graph.

use std::collections::BTreeMap;

use soybean_plan::{Combine, ScalarProgram, Shape};

use crate::{
    diagnostic::{ModelDiagnostic, ModelPart},
    graph::{Graph, Source},
    network::Network,
    operator::{GradientBuilder, Operator, OperatorCall},
    operators::{
        elementwise::{add, add_elementwise, all_dims},
        reduce::Reduce,
    },
    optimizer::Optimizer,
    signature::FactorId,
    updates,
    value::Value,
};

/// Adds the gradients of the loss by all parameters that are trained, and by the inputs whose
/// gradients are kept. In inference there is no
/// loss, and the network is returned unchanged.
///
/// # Errors
/// Returns a fault if the loss is not a scalar, one for each parameter or such input that does not
/// reach the loss, and one if nothing is trained but some parameters are frozen; in inference, one
/// for each parameter that reaches no output, and for each state that nothing is assigned to.
pub fn differentiate(
    network: Network,
    optimizer: &Optimizer,
) -> Result<Network, Vec<ModelDiagnostic>> {
    let mut network = network;
    let Some(loss) = network.loss else {
        check_inference(&network)?;
        return Ok(network);
    };
    let Network { graph, scalars, inputs, parameters, gradients: by_source, .. } = &mut network;
    let shape = graph.shape(loss);
    if !shape.is_empty() {
        let message = format!("the loss must be a scalar, found {shape}");
        let help = "end with `.mean(..)`, `.sum(..)`, `.mse(..)` or `.cross_entropy(..)`";
        return Err(vec![ModelDiagnostic {
            at: ModelPart::Loss,
            message,
            help: Some(help.to_owned()),
        }]);
    }
    let reaches_loss = graph.ancestors(&[loss]);
    let mut faults = Vec::new();
    parameters.retain(|&it| {
        let is_trained = optimizer.trains(&graph.node(it).name);
        if !is_trained && !reaches_loss[it.index()] {
            faults.push(without_gradient(graph, loss, it));
        }
        is_trained
    });
    let kept = inputs.iter().filter(|it| optimizer.keeps_input_gradient(&graph.node(**it).name));
    let sources: Vec<Value> = kept.chain(parameters.iter()).copied().collect();
    if sources.is_empty() && !optimizer.freeze.is_empty() {
        let message = "`freeze` names all parameters, so that none is trained".to_owned();
        faults.push(ModelDiagnostic { at: ModelPart::Freeze(0), message, help: None });
    }
    let found = gradients(graph, loss, &sources, &updates::seed(optimizer, scalars));
    for (&source, gradient) in sources.iter().zip(found) {
        match gradient {
            Some(gradient) => by_source.push((source, gradient)),
            None => faults.push(without_gradient(graph, loss, source)),
        }
    }
    if faults.is_empty() { Ok(network) } else { Err(faults) }
}

fn check_inference(network: &Network) -> Result<(), Vec<ModelDiagnostic>> {
    let is_needed = network.forward();
    let fault = |parameter: Value| {
        let name = &network.graph.node(parameter).name;
        ModelDiagnostic {
            at: ModelPart::Value(parameter),
            message: format!("no output depends on the parameter `{name}`"),
            help: Some("use it on the way to an output, or remove it".to_owned()),
        }
    };
    let unused = network.parameters.iter().filter(|it| !is_needed[it.index()]);
    let mut faults: Vec<ModelDiagnostic> = unused.map(|&it| fault(it)).collect();
    let graph = &network.graph;
    let is_left = |it: &Value| {
        let is_state = matches!(graph.node(*it).source, Source::State);
        is_state && !network.updates.iter().any(|(state, _)| state == it)
    };
    faults.extend(graph.values().filter(is_left).map(|state| ModelDiagnostic {
        at: ModelPart::Value(state),
        message: format!("nothing is assigned to the state `{}`", graph.node(state).name),
        help: Some("write `let new = state.assign(value)`, or remove it".to_owned()),
    }));
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn without_gradient(graph: &Graph, loss: Value, source: Value) -> ModelDiagnostic {
    let node = graph.node(source);
    let (name, kind) = match node.source {
        Source::Input { .. } => (&node.name, "input"),
        _ => (&node.name, "parameter"),
    };
    let (message, help) = match graph.ancestors(&[loss])[source.index()] {
        true => (
            format!("no gradient of the loss reaches the {kind} `{name}`"),
            "integers, comparisons, rounding, `sign` and `detach` let none through",
        ),
        false => (
            format!("the loss does not depend on the {kind} `{name}`"),
            "use it on the way to the loss, or remove it",
        ),
    };
    ModelDiagnostic { at: ModelPart::Value(source), message, help: Some(help.to_owned()) }
}

/// The graph during differentiation.
struct Differentiation<'a> {
    /// The graph, to which gradients are added.
    graph: &'a mut Graph,
    /// For each tensor of the forward graph, whether it depends on one whose gradient is wanted.
    depends_on_sources: &'a [bool],
}

impl GradientBuilder for Differentiation<'_> {
    fn shape(&self, value: Value) -> Shape {
        self.graph.shape(value)
    }

    fn needs_gradient(&self, value: Value) -> bool {
        self.depends_on_sources[value.index()]
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

/// Adds the gradients of a scalar loss with respect to some sources, times the number that `seed`
/// computes. A source without influence on the loss gets `None`.
fn gradients(
    graph: &mut Graph,
    loss: Value,
    sources: &[Value],
    seed: &ScalarProgram,
) -> Vec<Option<Value>> {
    let depends_on_sources = depends_on(graph, sources);
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
        let mut builder = Differentiation { graph, depends_on_sources: &depends_on_sources };
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
    sources.iter().map(|it| gradients.get(it).copied()).collect()
}

/// Returns for each tensor of a graph whether it depends on one of some sources.
fn depends_on(graph: &Graph, sources: &[Value]) -> Vec<bool> {
    let mut depends = vec![false; graph.n_values()];
    for source in sources {
        depends[source.index()] = true;
    }
    for value in graph.values() {
        depends[value.index()] |= graph.operands(value).iter().any(|it| depends[it.index()]);
    }
    depends
}
