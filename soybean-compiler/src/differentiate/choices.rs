//! Gradients of what a choice passes over: they are 0, not 0 times an infinite slope.
//!
//! The gradient of `where_` is 0 where it takes the other operand. The chain rule would multiply
//! this 0 by the slopes of what leads there, such as 1/0 of a root, and 0 times infinity is NaN.
//! So derivatives of tensors that lead to a choice are 0 where the gradient is, unless the slope is
//! known to be finite.

use soybean_plan::{Combine, DType, ScalarProgram};

use crate::{
    graph::{Graph, Source},
    operators::{elementwise::Elementwise, reduce::Reduce},
    scalar::{self, Known, ScalarBuilder, Sign},
    value::Value,
};

/// The tensors of a forward graph that lead to choices.
pub(super) struct Choices {
    /// A mark for each tensor on which a choice depends.
    leads_to_choice: Vec<bool>,
    /// A fact about the elements of each tensor.
    known: Vec<Known>,
}

impl Choices {
    /// Finds the tensors that lead to some of these, whose elements are chosen.
    pub(super) fn new(graph: &Graph, choices: &[Value]) -> Self {
        let leads_to_choice = graph.ancestors(choices);
        let known = if choices.is_empty() { Vec::new() } else { known(graph) };
        Self { leads_to_choice, known }
    }

    /// Returns whether gradients of a tensor may be 0 because another one was chosen.
    pub(super) fn may_pass_over(&self, value: Value) -> bool {
        self.leads_to_choice[value.index()]
    }

    /// Returns a program of a gradient rule that is 0 where the gradient among `values` is.
    pub(super) fn gated(
        &self,
        program: ScalarProgram,
        values: &[Value],
        gradient: Value,
    ) -> ScalarProgram {
        let Some(at) = values.iter().position(|it| *it == gradient) else { return program };
        let of = |value: &Value| match *value == gradient {
            true => Known::Value(0.0),
            false => self.known.get(value.index()).copied().unwrap_or(Known::Nothing),
        };
        let inputs: Vec<Known> = values.iter().map(of).collect();
        if scalar::known_result(&program, &inputs) == Known::Value(0.0) {
            return program;
        }
        scalar::zero_where_zero(&program, at)
    }
}

/// Returns what is known of the elements of each tensor. Parameters are finite, but batches may
/// have NaN where data are missing.
fn known(graph: &Graph) -> Vec<Known> {
    let any = Known::Finite(Sign::Any);
    let mut known = Vec::with_capacity(graph.n_values());
    for value in graph.values() {
        let operands = graph.operands(value);
        let inputs: Vec<Known> = operands.iter().map(|it: &Value| known[it.index()]).collect();
        let is_finite = inputs.iter().all(|it| *it != Known::Nothing);
        known.push(match graph.operator(value) {
            _ if graph.node(value).dtype == DType::I32 => any,
            Some(operator) if operator.is_alias() => inputs[0],
            Some(operator) => match (operator.downcast_ref(), operator.downcast_ref::<Reduce>()) {
                (Some(map), _) if is_finite && is_less_its_maximum(graph, map, &operands) => {
                    Known::Finite(Sign::NotPositive)
                }
                (Some(Elementwise { program, .. }), _) => scalar::known_result(program, &inputs),
                (None, Some(reduce)) => scalar::known_result(&reduce.map.program, &inputs).sum(),
                (None, None) if is_finite => any,
                (None, None) => Known::Nothing,
            },
            None if matches!(graph.node(value).source, Source::Input { .. }) => Known::Nothing,
            None => any,
        });
    }
    known
}

/// Returns whether a map subtracts from its operand the maximum of it, as softmax does.
fn is_less_its_maximum(graph: &Graph, map: &Elementwise, operands: &[Value]) -> bool {
    let [value, maximum] = *operands else { return false };
    let is_maximum = |it: &Reduce| it.combine == Combine::Max && graph.operands(maximum) == [value];
    graph.operator_as(maximum).is_some_and(is_maximum) && map.program == less_constant()
}

/// Returns the program of a difference whose second operand gets no gradient.
fn less_constant() -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let (x, y) = (it.input(0), it.input(1));
    let constant = it.detach(y);
    let difference = it.sub(x, constant);
    it.finish(difference)
}
