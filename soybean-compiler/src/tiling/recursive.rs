//! The paper's search: the best cut of the whole along the first axis, then of the halves along the next, and so on (Algorithm 1).
//!
//! Each cut is minimised exactly. The paper's dynamic programming walks the breadth-first levels of the graph; that is variable elimination in one
//! order of many, and any order gives the same minimum. A cut counts a tensor by the size of the part that the cuts before it left.

use std::{collections::BTreeMap, rc::Rc};

use soybean_plan::{Placement, Tiling};

use super::{
    forms::Repeating,
    pairwise::Pairwise,
    problem::{Choice, Meaning, Pair, Plan, Problem, Use},
    solve::{Goal, solve},
};
use crate::signature::{FactorId, Form, Signature, factor_id};

/// Entries of tables looked at for one cut.
const WORK: u64 = 1 << 25;

/// The plan of the recursive search.
pub(super) fn recursive(problem: &Problem<'_>) -> Plan {
    let n_axes = problem.mesh.n_axes();
    let uncut = |meaning: &Meaning| match meaning {
        Meaning::Tensor { .. } => Choice::Tensor(Tiling::replicated(n_axes)),
        Meaning::Operator { .. } => Choice::Operator(Form(vec![None; n_axes])),
    };
    let mut plan: Plan = problem.meanings.iter().map(uncut).collect();
    for axis in 0..n_axes {
        let options: Vec<Vec<Choice>> = problem
            .meanings
            .iter()
            .zip(&plan)
            .enumerate()
            .map(|(variable, (meaning, choice))| match problem.pin(variable) {
                Some(pin) => vec![Choice::Tensor(choice.tiling().with(axis, pin.on(axis)))],
                None => options(problem, meaning, choice, axis),
            })
            .collect();
        let costs = costs_of_cut(problem, &plan, &options, axis);
        let states = solve(&costs, None, Goal::proof(problem.work(WORK))).states;
        plan = options
            .into_iter()
            .zip(states)
            .map(|(mut options, state)| options.swap_remove(state))
            .collect();
    }
    plan
}

/// All ways to extend what has been chosen for a variable along the next axis.
fn options(problem: &Problem<'_>, meaning: &Meaning, choice: &Choice, axis: usize) -> Vec<Choice> {
    match (*meaning, choice) {
        (Meaning::Tensor { kind, .. }, Choice::Tensor(tiling)) => {
            let splits = &problem.kinds[kind];
            let tilings = splits.placements().map(|it| tiling.with(axis, it));
            tilings.filter(|it| splits.are_legal(it)).map(Choice::Tensor).collect()
        }
        (Meaning::Operator { work, .. }, Choice::Operator(form)) => {
            let work = &problem.works[work];
            let may_split = |factor: &FactorId| {
                work.splittable.may_split(*factor, form.axes_of(*factor).with(axis))
            };
            let with = |factor| {
                let mut form = form.clone();
                form.0[axis] = factor;
                Choice::Operator(form)
            };
            let factors = (0..work.signature.factors.len()).map(factor_id).filter(may_split);
            let mut options: Vec<Choice> = factors.map(Some).map(with).collect();
            if options.is_empty() || work.repeating == Repeating::Free {
                options.push(with(None));
            }
            options
        }
        _ => unreachable!("a choice is of the kind of its variable"),
    }
}

/// The costs of one cut, in parts of an element; all cuts of a group count alike, so the number of groups does not matter. What only evaluations move
/// counts for next to nothing.
fn costs_of_cut(
    problem: &Problem<'_>,
    before: &[Choice],
    options: &[Vec<Choice>],
    axis: usize,
) -> Pairwise {
    let unary = options.iter().map(|it| vec![0; it.len()]).collect();
    let mut known: BTreeMap<Key, Rc<[i64]>> = BTreeMap::new();
    let mut edges = Vec::with_capacity(problem.pairs.len());
    for pair in &problem.pairs {
        let rows = options[pair.tensor].iter().map(|it| it.tiling().on(axis)).collect();
        let columns = options[pair.operator].iter().map(|it| it.form().0[axis]).collect();
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

fn n_parts(problem: &Problem<'_>, uses: &[usize], before: &Choice) -> u64 {
    problem.kinds[problem.uses[uses[0]].kind].n_parts(&before.tiling())
}

fn table_of_cut(problem: &Problem<'_>, pair: &Pair, key: &Key, axis: usize) -> Rc<[i64]> {
    let (n_parts, uses, rows, columns) = key;
    let size = i64::try_from(problem.mesh.size(axis)).expect("axes are small");
    let uses = uses.iter().map(|&it| {
        let usage = &problem.uses[it];
        let signature = &problem.works[usage.work].signature;
        let needed = columns.iter().map(|&it| placement(signature, usage, it)).collect();
        let weight = if usage.is_measured { 1 << 8 } else { 1 };
        (usage, (usage.bytes / n_parts) as i64 * weight, needed)
    });
    let uses: Vec<(&Use, i64, Vec<Placement>)> = uses.collect();
    let numbers: Vec<usize> = (0..columns.len()).collect();
    pair.table(rows, &numbers, |&stored, &column| {
        let of_use = |(usage, elements, needed): &(&Use, i64, Vec<Placement>)| {
            let needed = needed[column];
            let (from, to) =
                if usage.operand.is_some() { (stored, needed) } else { (needed, stored) };
            // Of equal cuts, that is wanted in which working copies lie as their tensors.
            let is_held = usage.is_copy && from != to;
            elements * shares_moved(from, to, size) + i64::from(is_held)
        };
        uses.iter().map(of_use).sum()
    })
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
        (Split(_), Partial) => unreachable!("what lies in partial sums has no dims"),
    }
}
