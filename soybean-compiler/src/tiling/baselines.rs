//! Forced plans: plain data parallelism and plain model parallelism, as states among those worth it from which the search may still choose.

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

/// What is wanted of a tensor's tiling or of an operator's form; dims and factors alike are numbered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Preference {
    /// As many axes as possible along this one.
    Most(FactorId),
    /// As few axes as possible along this one.
    Fewest(FactorId),
    /// As many axes as possible along which the tensor is replicated.
    Replicated,
}

/// Data parallelism: what has a batch dim is split along it wherever that is possible, and parameters are replicated.
pub(super) fn data(instance: &Instance<'_>) -> Vec<Vec<usize>> {
    let problem = instance.problem;
    let batch = BatchDims::of(problem);
    labels(instance, |of_variable| match of_variable {
        Variable::Tensor { value, .. } => batch.dims[value.index()]
            .map(Preference::Most)
            .or_else(|| is_parameter(problem, value).then_some(Preference::Replicated)),
        Variable::Operator { value, .. } => batch.factors[value.index()].map(Preference::Most),
    })
}

/// Model parallelism: parameters are split along their last dim wherever that is possible, and the batch is split nowhere that something
/// else can be.
pub(super) fn model(instance: &Instance<'_>) -> Vec<Vec<usize>> {
    let problem = instance.problem;
    let batch = BatchDims::of(problem);
    labels(instance, |of_variable| match of_variable {
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

/// The states of each variable that come closest to what is wanted of it.
fn labels(
    instance: &Instance<'_>,
    wanted: impl Fn(Variable) -> Option<Preference>,
) -> Vec<Vec<usize>> {
    let mut known: BTreeMap<(bool, usize, Preference), Vec<usize>> = BTreeMap::new();
    let of_variable = |(variable, labels): (usize, Vec<usize>)| {
        let of_variable = instance.problem.variables[variable];
        let Some(wanted) = wanted(of_variable).filter(|_| labels.len() > 1) else { return labels };
        let key = match of_variable {
            Variable::Tensor { tensor_kind, .. } => (true, tensor_kind, wanted),
            Variable::Operator { operator_kind, .. } => (false, operator_kind, wanted),
        };
        let closest = || {
            let score = |label: &usize| score(&instance.label(variable, *label), wanted);
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
        Label::Operator(form) => n_axes(form.axes_of(of)),
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

/// Whether a tensor stays from step to step.
fn is_kept(problem: &TilingProblem<'_>, value: Value) -> bool {
    matches!(
        problem.network.graph.node(value).source,
        Source::Parameter(_) | Source::Buffer(_) | Source::State
    )
}

/// Where the samples of the batch are counted: by the first dim of every input, and by what operators make of it.
struct BatchDims {
    /// The dim of each tensor.
    dims: Vec<Option<FactorId>>,
    /// The factor of each tensor's operator.
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
        // Operators stand in the order of the values that they compute.
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
