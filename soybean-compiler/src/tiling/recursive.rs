//! The paper's search: the best cut of the whole along the first axis, then of the halves along the next, and so on (Algorithm 1).
//!
//! Each cut is minimised exactly. The paper's dynamic programming walks the breadth-first levels of the graph; that is variable elimination in one
//! order of many, and any order gives the same minimum. A cut counts a tensor by the size of the part that the cuts before it left.

use std::{collections::BTreeMap, rc::Rc};

use soybean_plan::{Placement, Tiling};

use super::{
    pairwise::Pairwise,
    problem::{Meaning, Pair, Problem, Use},
    solve::{WORK, solve},
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
            .zip(&problem.worth_splitting)
            .enumerate()
            .map(|(variable, ((meaning, cut), worth))| match (problem.pin(variable), cut) {
                (Some(pin), Cut::Tensor(tiling)) => {
                    vec![Cut::Tensor(tiling.with(axis, pin.on(axis)))]
                }
                _ => options(problem, meaning, cut, axis, worth),
            })
            .collect();
        let costs = costs_of_cut(problem, &cut, &options, axis);
        let states = solve(&costs, None, WORK).states;
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
            (Self::Operator(form), Meaning::Operator { work, .. }) => problem
                .work(*work)
                .forms
                .iter()
                .position(|it| it == form)
                .expect("cuts leave no axis unused that could be used"),
            _ => unreachable!("a cut is of the kind of its variable"),
        }
    }

    /// What was chosen along this axis for a tensor.
    fn placement(&self, axis: usize) -> Placement {
        match self {
            Self::Tensor(tiling) => tiling.on(axis),
            Self::Operator(_) => unreachable!("only tensors have placements"),
        }
    }

    /// What was chosen along this axis for an operator.
    fn factor(&self, axis: usize) -> Option<FactorId> {
        match self {
            Self::Operator(form) => form.0[axis],
            Self::Tensor(_) => unreachable!("only operators split factors"),
        }
    }
}

/// All ways to extend a variable's cuts along the next axis.
fn options(
    problem: &Problem<'_>,
    meaning: &Meaning,
    cut: &Cut,
    axis: usize,
    worth_splitting: &[bool],
) -> Vec<Cut> {
    match (meaning, cut) {
        (Meaning::Tensor { space, .. }, Cut::Tensor(tiling)) => {
            let splits = problem.space(*space).splits();
            let split = (0..splits.rank())
                .filter(|&it| worth_splitting[it])
                .map(|dim| Placement::Split(factor_id(dim)));
            let placements = [Placement::Replicated].into_iter().chain(split);
            let tilings =
                placements.map(|it| tiling.with(axis, it)).filter(|it| splits.are_legal(it));
            tilings.map(Cut::Tensor).collect()
        }
        (Meaning::Operator { work, .. }, Cut::Operator(form)) => {
            let signature = &problem.work(*work).signature;
            let may_split = |&factor: &FactorId| {
                signature.may_split(factor, &problem.mesh, form.axes_of(factor).with(axis))
            };
            let factors: Vec<FactorId> = (0..signature.factors.len())
                .filter(|&it| worth_splitting[it])
                .map(factor_id)
                .filter(may_split)
                .collect();
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

/// The costs of one cut, in parts of an element; all cuts of a group count alike, so the number of groups does not matter. What only evaluations move
/// counts for next to nothing.
fn costs_of_cut(
    problem: &Problem<'_>,
    before: &[Cut],
    options: &[Vec<Cut>],
    axis: usize,
) -> Pairwise {
    let unary = options.iter().map(|it| vec![0; it.len()]).collect();
    let mut known: BTreeMap<Key, Rc<[i64]>> = BTreeMap::new();
    let mut edges = Vec::with_capacity(problem.pairs.len());
    for pair in &problem.pairs {
        let rows = options[pair.tensor].iter().map(|it| it.placement(axis)).collect();
        let columns = options[pair.operator].iter().map(|it| it.factor(axis)).collect();
        let key =
            (n_parts(problem, &pair.uses, &before[pair.tensor]), pair.uses.clone(), rows, columns);
        let table = match known.get(&key) {
            Some(table) => Rc::clone(table),
            None => {
                let table = table_of_cut(problem, pair, &key, axis);
                known.insert(key, Rc::clone(&table));
                table
            }
        };
        edges.push(pair.edge(table));
    }
    Pairwise { unary, edges }
}

/// What the costs of a pair follow from: the number of parts that the cuts before left of the tensor, its uses, and what can be chosen for
/// the tensor and for the operator.
type Key = (u64, Vec<usize>, Vec<Placement>, Vec<Option<FactorId>>);

fn n_parts(problem: &Problem<'_>, uses: &[usize], before: &Cut) -> u64 {
    let Cut::Tensor(tiling) = before else { unreachable!("pairs lead from tensors") };
    let space = problem.space(problem.uses[uses[0]].space);
    space.n_parts(space.position(tiling))
}

fn table_of_cut(problem: &Problem<'_>, pair: &Pair, key: &Key, axis: usize) -> Rc<[i64]> {
    let (n_parts, uses, rows, columns) = key;
    let size = i64::try_from(problem.mesh.size(axis)).expect("axes are small");
    let mut table = vec![0; rows.len() * columns.len()];
    for usage in uses.iter().map(|&it| &problem.uses[it]) {
        let signature = &problem.work(usage.work).signature;
        let weight = if usage.is_trained { 1 << 8 } else { 1 };
        let elements = (usage.bytes / n_parts) as i64 * weight;
        let needed: Vec<Placement> =
            columns.iter().map(|&it| placement(signature, usage, it)).collect();
        for (row, &stored) in rows.iter().enumerate() {
            for (column, &needed) in needed.iter().enumerate() {
                let (from, to) =
                    if usage.operand.is_some() { (stored, needed) } else { (needed, stored) };
                let at = pair.position(row, column, rows.len(), columns.len());
                table[at] += elements * shares_moved(from, to, size);
            }
        }
    }
    table.into()
}

/// How an operand (or the result, where there is no operand) lies along an axis on which this factor is split.
fn placement(signature: &Signature, usage: &Use, factor: Option<FactorId>) -> Placement {
    let form = Form(vec![factor]);
    match usage.operand {
        Some(operand) => signature.operand_tiling(operand, &form).on(0),
        None => signature.result_tiling(&form).on(0),
    }
}

/// What a conversion along one axis of this size moves in a group, in parts of which the tensor has as many as the axis has ranks.
fn shares_moved(from: Placement, to: Placement, size: i64) -> i64 {
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
