//! The paper's recursive search (Algorithm 1). It takes the best cut along the first axis, then the
//! best cut of the halves along the next one, and so on.
//!
//! Each cut is minimized exactly. The paper's dynamic programming walks breadth-first levels of the
//! graph. That is variable elimination in one of many orders, all of which give the same minimum. A
//! cut counts each tensor by the size of the part that earlier cuts left.

use std::{collections::BTreeMap, rc::Rc};

use soybean_minsum::{Interner, Options, PairwiseProblem, solve};
use soybean_plan::{Placement, Tiling};

use super::{
    conversion::Splits,
    effort::{SearchEffort, WorkBudget},
    instance::AccessTable,
    problem::{Access, AccessEdge, Label, Plan, TableKey, TilingProblem, Variable},
    splittable::Redundancy,
};
use crate::signature::{FactorId, Partitioning, Signature};

/// The work for one cut, in table entries.
const WORK: u64 = 1 << 25;

/// Returns the plan of the recursive search.
pub(super) fn recursive(problem: &TilingProblem<'_>, effort: SearchEffort) -> Plan {
    let n_axes = problem.mesh.n_axes();
    // The cuts run beside the other baselines, on a thread and with work of their own.
    let budget = WorkBudget::new(effort);
    let work = budget.granted(problem.work(WORK), 2 * n_axes.max(1) as u64);
    let uncut = |of_variable: &Variable| match of_variable {
        Variable::Tensor { .. } => Label::Tensor(Tiling::replicated(n_axes)),
        Variable::Operator { .. } => Label::Operator(Partitioning(vec![None; n_axes])),
    };
    let mut plan: Plan = problem.variables.iter().map(uncut).collect();
    for axis in 0..n_axes {
        let options: Vec<CutOptions> =
            (0..plan.len()).map(|it| CutOptions::new(problem, it, &plan[it], axis)).collect();
        let costs = costs_of_cut(problem, &options, axis);
        let states = solve(&costs, None, Options::with_work(work)).labels;
        for ((label, options), state) in plan.iter_mut().zip(&options).zip(states) {
            options.choose(state, label, axis);
        }
    }
    plan
}

/// The labels of a variable along one axis.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CutOptions {
    /// The number of parts that earlier cuts left of the tensor, and its placements.
    Tensor(u64, Vec<Placement>),
    /// The factors of the operator that can be split, and its terms.
    Operator(Vec<Option<FactorId>>),
}

impl CutOptions {
    /// Returns all ways to extend a label along the next axis.
    fn new(problem: &TilingProblem<'_>, variable: usize, label: &Label, axis: usize) -> Self {
        match (problem.variables[variable], label) {
            (Variable::Tensor { tensor_kind, .. }, Label::Tensor(tiling)) => {
                let splits = &problem.tensor_kinds[tensor_kind];
                let is_legal = |it: &Placement| splits.are_legal(&tiling.with(axis, *it));
                let placements = match problem.pin(variable) {
                    Some(pin) => vec![pin.on(axis)],
                    None => splits.placements().filter(is_legal).collect(),
                };
                Self::Tensor(splits.n_parts(tiling), placements)
            }
            (Variable::Operator { operator_kind, .. }, Label::Operator(partitioning)) => {
                let operator_kind = &problem.operator_kinds[operator_kind];
                let may_split = |factor: &FactorId| {
                    operator_kind
                        .splittable
                        .may_split(*factor, partitioning.axes_of(*factor).with(axis))
                };
                let splittable = &operator_kind.splittable;
                let factors = splittable.factors().filter(may_split);
                let mut factors: Vec<Option<FactorId>> = factors.map(Some).collect();
                if factors.is_empty() || operator_kind.redundancy == Redundancy::Free {
                    factors.push(None);
                }
                factors.extend(splittable.terms().iter().copied().map(Some));
                Self::Operator(factors)
            }
            _ => unreachable!("a label is of the kind of its variable"),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Tensor(_, placements) => placements.len(),
            Self::Operator(factors) => factors.len(),
        }
    }

    /// Extends a label by one of the options.
    fn choose(&self, option: usize, label: &mut Label, axis: usize) {
        match (self, label) {
            (Self::Tensor(_, placements), Label::Tensor(tiling)) => {
                *tiling = tiling.with(axis, placements[option]);
            }
            (Self::Operator(factors), Label::Operator(partitioning)) => {
                partitioning.0[axis] = factors[option];
            }
            _ => unreachable!("options are of the kind of their variable"),
        }
    }
}

/// Returns the costs of one cut, in parts of an element. All groups of ranks have equal costs, so
/// their number does not matter. Conversions that only evaluations need count little. Halos count
/// for each operator that needs them, also where it uses those of an earlier one.
fn costs_of_cut(
    problem: &TilingProblem<'_>,
    options: &[CutOptions],
    axis: usize,
) -> PairwiseProblem {
    let mut numbers = Interner::default();
    let number_of: Vec<usize> = options.iter().map(|it| numbers.number(it)).collect();
    let mut known: BTreeMap<TableKey, Rc<[i64]>> = BTreeMap::new();
    let mut edge = |edge: &AccessEdge| {
        let variables = [edge.tensor, edge.operator];
        let table = || table_of_cut(problem, edge, variables.map(|it| &options[it]), axis);
        let key = TableKey::new(edge, variables.map(|it| number_of[it]), 0);
        edge.edge(Rc::clone(known.entry(key).or_insert_with(table)))
    };
    PairwiseProblem {
        unary: options.iter().map(|it| vec![0; it.len()]).collect(),
        edges: problem.edges.iter().map(&mut edge).collect(),
    }
}

fn table_of_cut(
    problem: &TilingProblem<'_>,
    edge: &AccessEdge,
    options: [&CutOptions; 2],
    axis: usize,
) -> Rc<[i64]> {
    let [CutOptions::Tensor(n_parts, placements), CutOptions::Operator(factors)] = options else {
        unreachable!("an edge connects a tensor and an operator")
    };
    let size = i64::try_from(problem.mesh.size(axis)).expect("axes are small");
    let of_access = |&access: &usize| {
        let access = &problem.accesses[access];
        let signature = &problem.operator_kinds[access.operator_kind].signature;
        let needed = |&it: &Option<FactorId>| {
            (placement(signature, access, it), halo_share(signature, access, it, size))
        };
        let weight = (access.weight << 8).max(1).cast_signed();
        let elements = (access.bytes / n_parts) as i64 * weight;
        let needed = factors.iter().map(needed);
        let cost = |stored: Placement, (needed, [halo, extent]): (Placement, [i64; 2])| {
            let (from, to) =
                if access.operand.is_some() { (stored, needed) } else { (needed, stored) };
            // Of equal cuts, prefer the one whose replicas have the tilings of their tensors.
            let is_held = access.is_replica && from != to;
            elements * shares_moved(from, to, size) + elements * halo / extent + i64::from(is_held)
        };
        AccessTable::new(placements.len(), needed, |needed, costs| {
            costs.extend(placements.iter().map(|&stored| cost(stored, needed)));
        })
    };
    let terms: Vec<AccessTable> = edge.accesses.iter().map(of_access).collect();
    edge.table(&terms)
}

/// Returns the placement of an operand, or of the result, along an axis that splits this factor.
fn placement(signature: &Signature, access: &Access, factor: Option<FactorId>) -> Placement {
    let partitioning = Partitioning(vec![factor]);
    match access.operand {
        Some(operand) => signature.operand_tiling(operand, &partitioning).on(0),
        None => signature.result_tiling(&partitioning).on(0),
    }
}

/// Returns what a halo moves in a group in the same units as [`shares_moved`], as a fraction, if
/// earlier cuts left the dim whole.
fn halo_share(
    signature: &Signature,
    access: &Access,
    factor: Option<FactorId>,
    size: i64,
) -> [i64; 2] {
    const NONE: [i64; 2] = [0, 1];
    let Some(operand) = access.operand.filter(|_| factor.is_some()) else { return NONE };
    let dim = signature.operands[operand].iter().find(|it| it.factor == factor);
    let Some(dim) = dim.filter(|it| it.has_halo()) else { return NONE };
    let [before, after] = dim.halo.unwrap_or_default();
    let number = |it: usize| i64::try_from(it).expect("extents fit 63 bits");
    [size * (size - 1) * number(before + after), number(dim.extent)]
}

/// Returns what a conversion along one axis moves in a group, in units of one rank's part.
fn shares_moved(from: Placement, to: Placement, size: i64) -> i64 {
    use Placement::{Partial, Replicated, Split};
    match (from, to) {
        (Replicated, _) | (Partial, Partial) => 0,
        (Split(i), Split(j)) if i == j => 0,
        (Split(_), Split(_)) => size - 1,
        (Split(_), Replicated | Partial) | (Partial, Split(_)) => size * (size - 1),
        (Partial, Replicated) => 2 * size * (size - 1),
    }
}
