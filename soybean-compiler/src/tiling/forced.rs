//! Forced plans: plain data parallelism and plain model parallelism, as states among those worth it from which the search may still choose.

use std::cmp::Reverse;

use soybean_plan::{Placement, Tiling};

use super::problem::{Meaning, Problem};
use crate::{
    graph::{Source, Value},
    operator::Rules,
    signature::FactorId,
};

/// Data parallelism: what has a batch dim is split along it wherever that is possible, and parameters are replicated.
pub(super) fn data(problem: &Problem<'_>, kept: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let batch = Batch::of(problem);
    let allowed = |(meaning, kept): (&Meaning, &Vec<usize>)| match meaning {
        Meaning::Tensor { value, space } => {
            let tilings = problem.space(*space).stored();
            most(kept, |&state| match batch.dims[value.index()] {
                Some(dim) => tilings[state].axes_of(dim).0.count_ones(),
                None if is_parameter(problem, *value) => n_replicated(&tilings[state]),
                None => 0,
            })
        }
        Meaning::Operator { value, work } => {
            let forms = &problem.work(*work).forms;
            match batch.factor(problem, *value) {
                Some(factor) => most(kept, |&it| forms[it].axes_of(factor).0.count_ones()),
                None => kept.clone(),
            }
        }
    };
    problem.meanings.iter().zip(kept).map(allowed).collect()
}

/// Model parallelism: parameters are split along their last dim wherever that is possible, and the batch is split nowhere that something
/// else can be.
pub(super) fn model(problem: &Problem<'_>, kept: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let batch = Batch::of(problem);
    let allowed = |(meaning, kept): (&Meaning, &Vec<usize>)| match meaning {
        Meaning::Tensor { value, space } => {
            let tilings = problem.space(*space).stored();
            let rank = problem.network.graph.shape(*value).len();
            if is_kept(problem, *value) && rank > 0 {
                return most(kept, |&it| tilings[it].axes_of(rank - 1).0.count_ones());
            }
            match batch.dims[value.index()] {
                Some(dim) => most(kept, |&it| Reverse(tilings[it].axes_of(dim).0.count_ones())),
                None => kept.clone(),
            }
        }
        Meaning::Operator { value, work } => {
            let forms = &problem.work(*work).forms;
            match batch.factor(problem, *value) {
                Some(factor) => most(kept, |&it| Reverse(forms[it].axes_of(factor).0.count_ones())),
                None => kept.clone(),
            }
        }
    };
    problem.meanings.iter().zip(kept).map(allowed).collect()
}

fn is_parameter(problem: &Problem<'_>, value: Value) -> bool {
    matches!(problem.network.graph.node(value).source, Source::Parameter(_))
}

/// Whether a tensor stays from step to step.
fn is_kept(problem: &Problem<'_>, value: Value) -> bool {
    matches!(problem.network.graph.node(value).source, Source::Parameter(_) | Source::State)
}

fn n_replicated(tiling: &Tiling) -> u32 {
    tiling.axes_where(|it| it == Placement::Replicated).0.count_ones()
}

/// The states with the highest score.
fn most<S: Ord>(kept: &[usize], score: impl Fn(&usize) -> S) -> Vec<usize> {
    let highest = kept.iter().map(&score).max();
    kept.iter().copied().filter(|it| highest.as_ref() == Some(&score(it))).collect()
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
                Source::Parameter(_) | Source::State => None,
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
