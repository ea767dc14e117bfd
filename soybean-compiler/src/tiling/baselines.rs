//! Baseline strategies: plain data parallelism and plain model parallelism, as the labels from
//! which the search may still choose.

use std::collections::BTreeMap;

use soybean_plan::{AxisSet, Placement};

use super::{
    instance::Instance,
    problem::{Label, TilingProblem, Variable},
};
use crate::{
    graph::Source,
    signature::{FactorId, factor_id},
    value::Value,
};

/// The preference for a tensor's tiling or an operator's partitioning, by the number of a dim or
/// factor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Preference {
    /// As many axes as possible split it.
    Most(FactorId),
    /// As few axes as possible split it.
    Fewest(FactorId),
    /// As many axes as possible replicate the tensor.
    Replicated,
}

/// Returns the labels of data parallelism: tensors with a batch dim are split along it wherever
/// possible, and parameters are replicated.
pub(super) fn data(instance: &Instance<'_>) -> Vec<Vec<usize>> {
    let problem = instance.problem;
    let batch = BatchDims::of(problem);
    labels(instance, |variable| match variable {
        Variable::Tensor { value, .. } => batch.dims[value.index()]
            .map(Preference::Most)
            .or_else(|| is_parameter(problem, value).then_some(Preference::Replicated)),
        Variable::Operator { value, .. } => batch.factors[value.index()].map(Preference::Most),
    })
}

/// Returns the labels of model parallelism: parameters are split along their last dim wherever
/// possible. The batch is split only where nothing else can be.
pub(super) fn model(instance: &Instance<'_>) -> Vec<Vec<usize>> {
    let problem = instance.problem;
    let batch = BatchDims::of(problem);
    labels(instance, |variable| match variable {
        Variable::Tensor { value, .. } => {
            let rank = problem.network.graph.shape(value).len();
            if is_kept(problem, value) && rank > 0 {
                return Some(Preference::Most(factor_id(rank - 1)));
            }
            batch.dims[value.index()].map(Preference::Fewest)
        }
        Variable::Operator { value, .. } => batch.factors[value.index()].map(Preference::Fewest),
    })
}

/// Returns the labels of each variable that fit its preference best.
fn labels(
    instance: &Instance<'_>,
    wanted: impl Fn(Variable) -> Option<Preference>,
) -> Vec<Vec<usize>> {
    let mut known: BTreeMap<(bool, usize, Preference), Vec<usize>> = BTreeMap::new();
    let of_variable = |(number, labels): (usize, Vec<usize>)| {
        let variable = instance.problem.variables[number];
        let Some(wanted) = wanted(variable).filter(|_| labels.len() > 1) else { return labels };
        let key = match variable {
            Variable::Tensor { tensor_kind, .. } => (true, tensor_kind, wanted),
            Variable::Operator { operator_kind, .. } => (false, operator_kind, wanted),
        };
        let closest = || {
            let score = |label: &usize| score(&instance.label(number, *label), wanted);
            let scores: Vec<i64> = labels.iter().map(score).collect();
            let highest = scores.iter().copied().max();
            let both = labels.iter().zip(scores).filter(|it| Some(it.1) == highest);
            both.map(|it| *it.0).collect()
        };
        known.entry(key).or_insert_with(closest).clone()
    };
    instance.all_labels().into_iter().enumerate().map(of_variable).collect()
}

fn score(label: &Label, wanted: Preference) -> i64 {
    let n_axes = |of: FactorId| match label {
        Label::Tensor(tiling) => n_axes(tiling.axes_of(of.into())),
        Label::Operator(partitioning) => n_axes(partitioning.axes_of(of)),
    };
    match wanted {
        Preference::Most(of) => n_axes(of),
        Preference::Fewest(of) => -n_axes(of),
        Preference::Replicated => {
            self::n_axes(label.tiling().axes_where(|it| it == Placement::Replicated))
        }
    }
}

fn n_axes(axes: AxisSet) -> i64 {
    axes.0.count_ones().into()
}

fn is_parameter(problem: &TilingProblem<'_>, value: Value) -> bool {
    matches!(problem.network.graph.node(value).source, Source::Parameter(_))
}

/// Returns whether a tensor persists from step to step.
fn is_kept(problem: &TilingProblem<'_>, value: Value) -> bool {
    problem.network.graph.node(value).source.is_kept()
}

/// The batch dim of tensors: the first dim of every input, and what operators make of it.
struct BatchDims {
    /// The batch dim of each tensor.
    dims: Vec<Option<FactorId>>,
    /// The batch factor of each tensor's operator.
    factors: Vec<Option<FactorId>>,
}

impl BatchDims {
    fn of(problem: &TilingProblem<'_>) -> Self {
        let graph = &problem.network.graph;
        let none = vec![None; graph.n_values()];
        let mut this = Self { dims: none.clone(), factors: none };
        for value in graph.values().filter(|it| !graph.shape(*it).is_empty()) {
            if let Source::Input { .. } = graph.node(value).source {
                this.dims[value.index()] = Some(0);
            }
        }
        // Operators are in the order of the values that they compute.
        for of_variable in &problem.variables {
            let Variable::Operator { value, operator_kind } = *of_variable else { continue };
            let signature = &problem.operator_kinds[operator_kind].signature;
            let of_operand = |(position, operand): (usize, Value)| {
                let dim = this.dims[operand.index()]?;
                signature.operands[position][usize::from(dim)].factor
            };
            let factor = graph.operands(value).into_iter().enumerate().find_map(of_operand);
            this.factors[value.index()] = factor;
            let is_batch = |at: &usize| factor.is_some() && signature.result[*at].factor == factor;
            let dim = (0..signature.result.len()).find(is_batch);
            this.dims[value.index()] = dim.map(factor_id);
        }
        this
    }
}
