//! The paper's search: the best cut of the whole along the first axis, then of the halves along the next, and so on (Algorithm 1).
//!
//! Each cut is minimised exactly. The paper's dynamic programming walks the breadth-first levels of the graph; that is variable elimination in one
//! order of many, and any order gives the same minimum. A cut counts a tensor by the size of the part that the cuts before it left.

use std::{collections::BTreeMap, rc::Rc};

use soybean_minsum::{Interner, Options, PairwiseProblem, solve};
use soybean_plan::{Placement, Tiling};

use super::{
    forms::Repeating,
    problem::{Choice, Meaning, Pair, Plan, Problem, Use},
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
        let options: Vec<CutOptions> =
            (0..plan.len()).map(|it| CutOptions::new(problem, it, &plan[it], axis)).collect();
        let costs = costs_of_cut(problem, &options, axis);
        let states = solve(&costs, None, Options::with_work(problem.work(WORK))).labels;
        for ((choice, options), state) in plan.iter_mut().zip(&options).zip(states) {
            options.choose(state, choice, axis);
        }
    }
    plan
}

/// What can be chosen for a variable along an axis.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CutOptions {
    /// How the tensor can lie, of which the cuts before left so many parts.
    Tensor(u64, Vec<Placement>),
    /// Which factor of the operator can be split.
    Operator(Vec<Option<FactorId>>),
}

impl CutOptions {
    /// All ways to extend what has been chosen for a variable along the next axis.
    fn new(problem: &Problem<'_>, variable: usize, choice: &Choice, axis: usize) -> Self {
        match (problem.meanings[variable], choice) {
            (Meaning::Tensor { kind, .. }, Choice::Tensor(tiling)) => {
                let splits = &problem.kinds[kind];
                let is_legal = |it: &Placement| splits.are_legal(&tiling.with(axis, *it));
                let placements = match problem.pin(variable) {
                    Some(pin) => vec![pin.on(axis)],
                    None => splits.placements().filter(is_legal).collect(),
                };
                Self::Tensor(splits.n_parts(tiling), placements)
            }
            (Meaning::Operator { work, .. }, Choice::Operator(form)) => {
                let work = &problem.works[work];
                let may_split = |factor: &FactorId| {
                    work.splittable.may_split(*factor, form.axes_of(*factor).with(axis))
                };
                let factors = (0..work.signature.factors.len()).map(factor_id).filter(may_split);
                let mut factors: Vec<Option<FactorId>> = factors.map(Some).collect();
                if factors.is_empty() || work.repeating == Repeating::Free {
                    factors.push(None);
                }
                Self::Operator(factors)
            }
            _ => unreachable!("a choice is of the kind of its variable"),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Tensor(_, placements) => placements.len(),
            Self::Operator(factors) => factors.len(),
        }
    }

    /// Extends a choice by one of the options.
    fn choose(&self, option: usize, choice: &mut Choice, axis: usize) {
        match (self, choice) {
            (Self::Tensor(_, placements), Choice::Tensor(tiling)) => {
                *tiling = tiling.with(axis, placements[option]);
            }
            (Self::Operator(factors), Choice::Operator(form)) => form.0[axis] = factors[option],
            _ => unreachable!("options are of the kind of their variable"),
        }
    }
}

/// What a table follows from: the uses of a tensor by an operator, and the numbers of what can be chosen for them.
type Key<'a> = (&'a [usize], [usize; 2]);

/// The costs of one cut, in parts of an element; all cuts of a group count alike, so the number of groups does not matter. What only evaluations move
/// counts for next to nothing.
fn costs_of_cut<'a>(
    problem: &'a Problem<'_>,
    options: &[CutOptions],
    axis: usize,
) -> PairwiseProblem {
    let mut numbers = Interner::default();
    let number_of: Vec<usize> = options.iter().map(|it| numbers.number(it)).collect();
    let mut known: BTreeMap<Key<'_>, Rc<[i64]>> = BTreeMap::new();
    let mut edge = |pair: &'a Pair| {
        let variables = [pair.tensor, pair.operator];
        let table = || table_of_cut(problem, pair, variables.map(|it| &options[it]), axis);
        let key = (&pair.uses[..], variables.map(|it| number_of[it]));
        pair.edge(Rc::clone(known.entry(key).or_insert_with(table)))
    };
    PairwiseProblem {
        unary: options.iter().map(|it| vec![0; it.len()]).collect(),
        edges: problem.pairs.iter().map(&mut edge).collect(),
    }
}

fn table_of_cut(
    problem: &Problem<'_>,
    pair: &Pair,
    options: [&CutOptions; 2],
    axis: usize,
) -> Rc<[i64]> {
    let [CutOptions::Tensor(n_parts, placements), CutOptions::Operator(factors)] = options else {
        unreachable!("a pair is of a tensor and an operator")
    };
    let size = i64::try_from(problem.mesh.size(axis)).expect("axes are small");
    let uses = pair.uses.iter().map(|&it| {
        let usage = &problem.uses[it];
        let signature = &problem.works[usage.work].signature;
        let needed = factors.iter().map(|&it| placement(signature, usage, it)).collect();
        let weight = if usage.is_measured { 1 << 8 } else { 1 };
        (usage, (usage.bytes / n_parts) as i64 * weight, needed)
    });
    let uses: Vec<(&Use, i64, Vec<Placement>)> = uses.collect();
    let numbers: Vec<usize> = (0..factors.len()).collect();
    pair.table(placements, &numbers, |&stored, &factor| {
        let of_use = |(usage, elements, needed): &(&Use, i64, Vec<Placement>)| {
            let needed = needed[factor];
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
