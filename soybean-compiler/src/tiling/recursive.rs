//! The paper's search: the best cut of the whole along the first axis, then of the halves along the next, and so on (Algorithm 1).
//!
//! Each cut is minimised exactly. The paper's dynamic programming walks the breadth-first levels of the graph; that is variable elimination in one
//! order of many, and any order gives the same minimum. A cut counts a tensor by the size of the part that the cuts before it left.

use soybean_plan::{Placement, Tiling};

use super::{
    eliminate::minimise,
    pairwise::{Edge, Pairwise},
    problem::{Meaning, Problem},
};
use crate::signature::{FactorId, Form, Signature, factor_id};

/// The states of the plan of the recursive search.
pub(super) fn recursive(problem: &Problem<'_>) -> Vec<usize> {
    let mut cut: Vec<Cut> =
        problem.meanings.iter().map(|meaning| Cut::new(problem, meaning)).collect();
    for axis in 0..problem.mesh.n_axes() {
        let options: Vec<Vec<Cut>> = problem
            .meanings
            .iter()
            .zip(&cut)
            .map(|(meaning, cut)| options(problem, meaning, cut, axis))
            .collect();
        let costs = costs_of_cut(problem, &cut, &options, axis);
        // One axis has a handful of states for each variable, so that tables stay far below any limit.
        let states = minimise(&costs, usize::MAX).0.expect("there is no limit");
        cut = options
            .into_iter()
            .zip(states)
            .map(|(mut options, state)| options.swap_remove(state))
            .collect();
    }
    problem.meanings.iter().zip(&cut).map(|(meaning, cut)| cut.state(problem, meaning)).collect()
}

/// What has been chosen for a variable along the axes so far.
#[derive(Clone)]
enum Cut {
    Tensor(Tiling),
    Operator(Form),
}

impl Cut {
    fn new(problem: &Problem<'_>, meaning: &Meaning) -> Self {
        match meaning {
            Meaning::Tensor { .. } => Self::Tensor(Tiling::replicated(problem.mesh.n_axes())),
            Meaning::Operator { .. } => Self::Operator(Form(Vec::new())),
        }
    }

    fn state(&self, problem: &Problem<'_>, meaning: &Meaning) -> usize {
        match (self, meaning) {
            (Self::Tensor(tiling), Meaning::Tensor { space, .. }) => {
                problem.space(*space).position(tiling)
            }
            (Self::Operator(form), Meaning::Operator { forms, .. }) => forms
                .iter()
                .position(|it| it == form)
                .expect("cuts leave no axis unused that could be used"),
            _ => unreachable!("a cut is of the kind of its variable"),
        }
    }
}

/// All ways to extend a variable's cuts along the next axis.
fn options(problem: &Problem<'_>, meaning: &Meaning, cut: &Cut, axis: usize) -> Vec<Cut> {
    match (meaning, cut) {
        (Meaning::Tensor { space, .. }, Cut::Tensor(tiling)) => {
            let splits = problem.space(*space).splits();
            let split = (0..splits.rank()).map(|dim| Placement::Split(factor_id(dim)));
            let placements = [Placement::Replicated].into_iter().chain(split);
            let tilings =
                placements.map(|it| tiling.with(axis, it)).filter(|it| splits.are_legal(it));
            tilings.map(Cut::Tensor).collect()
        }
        (Meaning::Operator { signature, .. }, Cut::Operator(form)) => {
            let may_split = |&factor: &FactorId| {
                signature.may_split(factor, &problem.mesh, form.axes_of(factor).with(axis))
            };
            let factors: Vec<FactorId> =
                (0..signature.factors.len()).map(factor_id).filter(may_split).collect();
            let with =
                |choice| Cut::Operator(Form(form.0.iter().copied().chain([choice]).collect()));
            if factors.is_empty() {
                vec![with(None)]
            } else {
                factors.into_iter().map(|it| with(Some(it))).collect()
            }
        }
        _ => unreachable!("a cut is of the kind of its variable"),
    }
}

/// The costs of one cut, in parts of an element; all cuts of a group count alike, so the number of groups does not matter.
fn costs_of_cut(
    problem: &Problem<'_>,
    before: &[Cut],
    options: &[Vec<Cut>],
    axis: usize,
) -> Pairwise {
    let unary = options.iter().map(|it| vec![0; it.len()]).collect();
    let edges = problem.uses.iter().map(|it| {
        let table = table_of_cut(problem, it, before, options, axis);
        Edge { first: it.tensor, second: it.operator, table }
    });
    let mut costs = Pairwise { unary, edges: edges.collect() };
    costs.merge_parallel_edges();
    costs
}

fn table_of_cut(
    problem: &Problem<'_>,
    usage: &super::problem::Use,
    before: &[Cut],
    options: &[Vec<Cut>],
    axis: usize,
) -> Vec<u64> {
    let Meaning::Operator { signature, .. } = &problem.meanings[usage.operator] else {
        unreachable!("uses lead to operators")
    };
    let Cut::Tensor(stored) = &before[usage.tensor] else { unreachable!("uses lead from tensors") };
    let Meaning::Tensor { space, .. } = &problem.meanings[usage.tensor] else {
        unreachable!("uses lead from tensors")
    };
    let space = problem.space(*space);
    let elements = problem.bytes_of(usage.value) / space.n_parts(space.position(stored));
    let size = problem.mesh.size(axis) as u64;
    let mut table = Vec::with_capacity(options[usage.tensor].len() * options[usage.operator].len());
    for tensor in &options[usage.tensor] {
        for operator in &options[usage.operator] {
            let (Cut::Tensor(tiling), Cut::Operator(form)) = (tensor, operator) else {
                unreachable!("uses lead from tensors to operators")
            };
            let (stored, needed) =
                (tiling.on(axis), placement(signature, usage.operand, form, axis));
            let (from, to) =
                if usage.operand.is_some() { (stored, needed) } else { (needed, stored) };
            table.push(elements * shares_moved(from, to, size));
        }
    }
    table
}

/// How an operand (or the result, where there is no operand) lies along one axis in this form.
fn placement(signature: &Signature, operand: Option<usize>, form: &Form, axis: usize) -> Placement {
    match operand {
        Some(operand) => signature.operand_tiling(operand, form).on(axis),
        None => signature.result_tiling(form).on(axis),
    }
}

/// What a conversion along one axis of this size moves in a group, in parts of which the tensor has as many as the axis has ranks.
fn shares_moved(from: Placement, to: Placement, size: u64) -> u64 {
    use Placement::{Partial, Replicated, Split};
    match (from, to) {
        (Replicated, _) | (Partial, Partial) => 0,
        (Split(i), Split(j)) if i == j => 0,
        (Split(_), Split(_)) => size - 1,
        (Split(_), Replicated) | (Partial, Split(_)) => size * (size - 1),
        (Partial, Replicated) => 2 * size * (size - 1),
        (Split(_), Partial) => unreachable!("nothing is made partial"),
    }
}
