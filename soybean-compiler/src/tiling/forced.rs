//! Forced plans: plain data parallelism and plain model parallelism, as states among those worth it from which the search may still choose.

use std::cmp::Reverse;

use soybean_plan::{AxisSet, Placement, Tiling};

use super::{
    problem::{Choice, Meaning, Problem},
    view::View,
};
use crate::{
    graph::{Source, Value},
    operator::Rules,
    signature::FactorId,
};

/// Data parallelism: what has a batch dim is split along it wherever that is possible, and parameters are replicated.
pub(super) fn data(view: &View<'_>) -> Vec<Vec<usize>> {
    let batch = Batch::of(view.problem);
    let n_batch = |it: &Choice, value: Value| match it {
        Choice::Tensor(tiling) => match batch.dims[value.index()] {
            Some(dim) => n_axes(tiling.axes_of(dim)),
            None if is_parameter(view.problem, value) => n_replicated(tiling),
            None => 0,
        },
        Choice::Operator(form) => {
            batch.factor(view.problem, value).map_or(0, |factor| n_axes(form.axes_of(factor)))
        }
    };
    most(view, n_batch)
}

/// Model parallelism: parameters are split along their last dim wherever that is possible, and the batch is split nowhere that something
/// else can be.
pub(super) fn model(view: &View<'_>) -> Vec<Vec<usize>> {
    let batch = Batch::of(view.problem);
    let score = |it: &Choice, value: Value| match it {
        Choice::Tensor(tiling) => {
            let rank = view.problem.network.graph.shape(value).len();
            if is_kept(view.problem, value) && rank > 0 {
                return (n_axes(tiling.axes_of(rank - 1)), Reverse(0));
            }
            let n_batch = batch.dims[value.index()].map_or(0, |dim| n_axes(tiling.axes_of(dim)));
            (0, Reverse(n_batch))
        }
        Choice::Operator(form) => {
            let factor = batch.factor(view.problem, value);
            (0, Reverse(factor.map_or(0, |factor| n_axes(form.axes_of(factor)))))
        }
    };
    most(view, score)
}

/// The states of each variable with the highest score.
fn most<S: Ord>(view: &View<'_>, score: impl Fn(&Choice, Value) -> S) -> Vec<Vec<usize>> {
    let of_variable = |(variable, states): (usize, Vec<usize>)| {
        let (Meaning::Tensor { value, .. } | Meaning::Operator { value, .. }) =
            view.problem.meanings[variable];
        let score = |state: &usize| score(&view.choice(variable, *state), value);
        let highest = states.iter().map(&score).max();
        states.into_iter().filter(|it| highest.as_ref() == Some(&score(it))).collect()
    };
    view.all_states().into_iter().enumerate().map(of_variable).collect()
}

fn n_axes(axes: AxisSet) -> u32 {
    axes.0.count_ones()
}

fn is_parameter(problem: &Problem<'_>, value: Value) -> bool {
    matches!(problem.network.graph.node(value).source, Source::Parameter(_))
}

/// Whether a tensor stays from step to step.
fn is_kept(problem: &Problem<'_>, value: Value) -> bool {
    matches!(
        problem.network.graph.node(value).source,
        Source::Parameter(_) | Source::Buffer(_) | Source::State
    )
}

fn n_replicated(tiling: &Tiling) -> u32 {
    tiling.axes_where(|it| it == Placement::Replicated).0.count_ones()
}

/// Which dim of each tensor counts the samples of the batch: the first of every input, and what operators make of it.
struct Batch {
    dims: Vec<Option<usize>>,
}

impl Batch {
    fn of(problem: &Problem<'_>) -> Self {
        let graph = &problem.network.graph;
        let mut this = Self { dims: vec![None; graph.n_values()] };
        for value in graph.values() {
            this.dims[value.index()] = match &graph.node(value).source {
                Source::Input { .. } => (!graph.shape(value).is_empty()).then_some(0),
                Source::Parameter(_) | Source::Buffer(_) | Source::State => None,
                Source::Operator(operator) => this.factor(problem, value).and_then(|factor| {
                    let signature = operator.signature(&graph.operand_shapes(value));
                    signature.result.iter().position(|dim| dim.factor == Some(factor))
                }),
            };
        }
        this
    }

    /// The factor of an operator that counts samples.
    fn factor(&self, problem: &Problem<'_>, value: Value) -> Option<FactorId> {
        let graph = &problem.network.graph;
        let signature = graph.operator(value)?.signature(&graph.operand_shapes(value));
        let operands = graph.operands(value);
        let of_operand = |(position, operand): (usize, &Value)| {
            let dim = self.dims[operand.index()]?;
            signature.operands[position][dim].factor
        };
        operands.iter().enumerate().find_map(of_operand)
    }
}
