//! Forced plans: plain data parallelism and plain model parallelism, as states among those worth it from which the search may still choose.

use std::collections::BTreeMap;

use soybean_plan::{AxisSet, Placement};

use super::{
    problem::{Choice, Meaning, Problem},
    view::View,
};
use crate::{
    graph::Source,
    signature::{FactorId, factor_id},
    value::Value,
};

/// What is wanted of a tensor's tiling or of an operator's form; dims and factors alike are numbered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    /// As many axes as possible along this one.
    Most(FactorId),
    /// As few axes as possible along this one.
    Fewest(FactorId),
    /// As many axes as possible along which the tensor is replicated.
    Replicated,
}

/// Data parallelism: what has a batch dim is split along it wherever that is possible, and parameters are replicated.
pub(super) fn data(view: &View<'_>) -> Vec<Vec<usize>> {
    let problem = view.problem;
    let batch = Batch::of(problem);
    states(view, |meaning| match meaning {
        Meaning::Tensor { value, .. } => batch.dims[value.index()]
            .map(Wanted::Most)
            .or_else(|| is_parameter(problem, value).then_some(Wanted::Replicated)),
        Meaning::Operator { value, .. } => batch.factors[value.index()].map(Wanted::Most),
    })
}

/// Model parallelism: parameters are split along their last dim wherever that is possible, and the batch is split nowhere that something
/// else can be.
pub(super) fn model(view: &View<'_>) -> Vec<Vec<usize>> {
    let problem = view.problem;
    let batch = Batch::of(problem);
    states(view, |meaning| match meaning {
        Meaning::Tensor { value, .. } => {
            let rank = problem.network.graph.shape(value).len();
            if is_kept(problem, value) && rank > 0 {
                return Some(Wanted::Most(factor_id(rank - 1)));
            }
            batch.dims[value.index()].map(Wanted::Fewest)
        }
        Meaning::Operator { value, .. } => batch.factors[value.index()].map(Wanted::Fewest),
    })
}

/// The states of each variable that come closest to what is wanted of it.
fn states(view: &View<'_>, wanted: impl Fn(Meaning) -> Option<Wanted>) -> Vec<Vec<usize>> {
    let mut known: BTreeMap<(bool, usize, Wanted), Vec<usize>> = BTreeMap::new();
    let of_variable = |(variable, states): (usize, Vec<usize>)| {
        let meaning = view.problem.meanings[variable];
        let Some(wanted) = wanted(meaning).filter(|_| states.len() > 1) else { return states };
        let key = match meaning {
            Meaning::Tensor { kind, .. } => (true, kind, wanted),
            Meaning::Operator { work, .. } => (false, work, wanted),
        };
        let closest = || {
            let score = |state: &usize| score(&view.choice(variable, *state), wanted);
            let scores: Vec<i64> = states.iter().map(score).collect();
            let highest = scores.iter().copied().max();
            let both = states.iter().zip(scores).filter(|it| Some(it.1) == highest);
            both.map(|it| *it.0).collect()
        };
        known.entry(key).or_insert_with(closest).clone()
    };
    view.all_states().into_iter().enumerate().map(of_variable).collect()
}

fn score(choice: &Choice, wanted: Wanted) -> i64 {
    let n_axes = |of: FactorId| match choice {
        Choice::Tensor(tiling) => n_axes(tiling.axes_of(of.into())),
        Choice::Operator(form) => n_axes(form.axes_of(of)),
    };
    match wanted {
        Wanted::Most(of) => n_axes(of),
        Wanted::Fewest(of) => -n_axes(of),
        Wanted::Replicated => {
            self::n_axes(choice.tiling().axes_where(|it| it == Placement::Replicated))
        }
    }
}

fn n_axes(axes: AxisSet) -> i64 {
    axes.0.count_ones().into()
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

/// Where the samples of the batch are counted: by the first dim of every input, and by what operators make of it.
struct Batch {
    /// The dim of each tensor.
    dims: Vec<Option<FactorId>>,
    /// The factor of each tensor's operator.
    factors: Vec<Option<FactorId>>,
}

impl Batch {
    fn of(problem: &Problem<'_>) -> Self {
        let graph = &problem.network.graph;
        let none = vec![None; graph.n_values()];
        let mut this = Self { dims: none.clone(), factors: none };
        for value in graph.values().filter(|it| !graph.shape(*it).is_empty()) {
            if let Source::Input { .. } = graph.node(value).source {
                this.dims[value.index()] = Some(0);
            }
        }
        // Operators stand in the order of the values that they compute.
        for meaning in &problem.meanings {
            let Meaning::Operator { value, work } = *meaning else { continue };
            let signature = &problem.works[work].signature;
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
