//! The plan of least cost: from counts of axes to blocks of them to single axes.
//!
//! 1. In counts ([`Resolution`]) there are few states, so that the least cost is found fast. No plan costs less.
//! 2. What was found is laid out in blocks of axes that fit it. Mostly some plan costs just as much; then it is proved optimal.
//! 3. If not, the plan is improved by changes of one block for each variable; and where there are few axes, all plans are searched that can still be better.

use soybean_minsum::{NO_LIMIT, Options, labels_at, labels_within, solve, solve_below};
use soybean_plan::{AxisSet, Mesh};

use super::{
    axis_partition::{axis_partitions, symmetry_classes},
    candidates::Candidates,
    instance::Instance,
    problem::{Label, Plan, TilingProblem, WORK},
    resolution::Resolution,
};

/// The most axes that are told apart, all of them, where that is needed for a proof.
const MAX_FINE_AXES: usize = 4;
/// The most entries of the tables of all pairs; those of pairs that are alike are one in memory.
const MAX_ENTRIES: usize = 1 << 26;
/// The work of a proof in pieces, where there are few axes.
const DECOMPOSITION_WORK: u64 = 1 << 35;
/// The axes for which the work is stated. Twice as much is done for each of the next few.
const N_AXES_AT_ONCE: usize = 3;
const MOST_DOUBLINGS: usize = 3;
/// Partitions into blocks that are tried.
const MAX_PARTITIONS: usize = 8;
/// The most entries of the tables of a layout, where there is one already.
const MAX_ASSIGNMENT_ENTRIES: usize = 1 << 19;
/// One part of a cost among as many is not worth further search.
const NEGLIGIBLE: i64 = 1 << 11;
/// Passes of the bound that rules out states in counts.
const N_PASSES: u64 = 8;

/// A plan, and what is known of those that cost less.
#[derive(Clone)]
pub(super) struct BoundedPlan {
    pub(super) plan: Plan,
    pub(super) cost: i64,
    /// No plan costs less than this.
    pub(super) bound: i64,
    /// The entries of the largest table.
    pub(super) largest_table: usize,
}

impl BoundedPlan {
    /// A plan of which nothing else is known.
    pub(super) fn new(problem: &TilingProblem<'_>, plan: Plan) -> Self {
        Self { cost: problem.cost(&plan), plan, bound: 0, largest_table: 0 }
    }

    /// The plan alone: what was proved holds only for some of all plans.
    pub(super) fn unproved(self) -> Self {
        Self { bound: 0, largest_table: 0, ..self }
    }

    pub(super) fn is_optimal(&self) -> bool {
        self.bound == self.cost
    }
}

/// How hard to look for better plans.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// A layout of what is best in counts.
    Assignment,
    /// Until the best plan is proved, or the work is used up.
    Proof,
}

/// A problem, and its view in counts.
pub(super) struct CoarseToFine<'a> {
    problem: &'a TilingProblem<'a>,
    orbits: Instance<'a>,
    /// The work of a search near a plan.
    work: u64,
    /// That of a search in counts, or of all axes told apart.
    coarse_work: u64,
}

impl<'a> CoarseToFine<'a> {
    pub(super) fn new(problem: &'a TilingProblem<'a>) -> Self {
        let mesh = &problem.mesh;
        let orbits = Instance::new(problem, Resolution::orbits(mesh, &symmetry_classes(problem)));
        let n_doublings = mesh.n_axes().saturating_sub(N_AXES_AT_ONCE).min(MOST_DOUBLINGS);
        let work = problem.work(WORK);
        Self { problem, orbits, work, coarse_work: work << n_doublings }
    }

    /// The view in counts.
    pub(super) fn orbits(&self) -> &Instance<'a> {
        &self.orbits
    }

    /// What is not worth further search where a plan costs this much: nothing is too little where all axes can be told apart.
    fn negligible(&self, cost: i64) -> i64 {
        if self.problem.mesh.n_axes() <= MAX_FINE_AXES { 0 } else { cost / NEGLIGIBLE }
    }

    /// The best plan among these states in counts, no worse than the plans in hand.
    pub(super) fn best(
        &self,
        allowed: &[Vec<usize>],
        in_hand: &[&BoundedPlan],
        effort: Effort,
    ) -> BoundedPlan {
        let start = in_hand.iter().min_by_key(|it| it.cost);
        let from = start.and_then(|it| self.orbits.positions(allowed, &it.plan));
        let costs = self.orbits.restricted(allowed);
        let options = Options {
            gap: self.negligible(start.map_or(0, |it| it.cost)),
            ..Options::with_work(self.coarse_work)
        };
        let found = solve(&costs, from.as_deref(), options);
        let mut refinement = Refinement {
            parent: self,
            allowed,
            found: BoundedPlan {
                cost: start.map_or(i64::MAX, |it| it.cost),
                plan: start.map_or_else(Vec::new, |it| it.plan.clone()),
                bound: found.lower_bound,
                largest_table: found.largest_table,
            },
        };
        let blocks = refinement.assign_axes(&labels_at(allowed, &found.labels), effort);
        if effort == Effort::Assignment || refinement.is_settled() {
            return refinement.found;
        }
        let mesh = &self.problem.mesh;
        refinement.improve(&blocks);
        refinement.improve(&single_axes(mesh));
        if !refinement.is_settled() && mesh.n_axes() <= MAX_FINE_AXES {
            let kept = labels_within(&costs, refinement.found.cost, N_PASSES);
            refinement.search(&labels_at_each(allowed, &kept));
        }
        refinement.found
    }
}

/// The search for a plan of which counts are known.
struct Refinement<'a> {
    parent: &'a CoarseToFine<'a>,
    /// The states in counts that plans may have.
    allowed: &'a [Vec<usize>],
    found: BoundedPlan,
}

impl Refinement<'_> {
    /// Whether the plan is proved, or as good as proved where not all axes can be told apart.
    fn is_settled(&self) -> bool {
        let BoundedPlan { cost, bound, .. } = self.found;
        cost - bound <= self.parent.negligible(bound)
    }

    /// The best plans with these states in counts, by one partition of the axes into blocks after the other until one does justice to them; gives the
    /// best partition.
    fn assign_axes(&mut self, labels: &[usize], effort: Effort) -> Vec<AxisSet> {
        let CoarseToFine { problem, orbits, .. } = self.parent;
        let is_quick = effort == Effort::Assignment && problem.mesh.n_axes() > MAX_FINE_AXES;
        let n_partitions = if is_quick { 1 } else { MAX_PARTITIONS };
        let wanted = orbits.plan(labels);
        let partitions = axis_partitions(orbits, labels);
        let (mut best, mut least) = (0, NO_LIMIT);
        for (number, blocks) in partitions.iter().take(n_partitions).enumerate() {
            if let Some(cost) = self.assign_by_blocks(&wanted, blocks, least) {
                (best, least) = (number, cost);
            }
            if self.is_settled() {
                break;
            }
        }
        partitions.into_iter().nth(best).expect("axes can be taken one by one")
    }

    /// The cost of the best plan that is like this one by counts, if it can be laid out in blocks, is not too large, and costs less than the limit.
    fn assign_by_blocks(
        &mut self,
        wanted: &[Label],
        blocks: &[AxisSet],
        limit: i64,
    ) -> Option<i64> {
        let problem = self.parent.problem;
        let classes = self.parent.orbits.resolution.classes();
        let single = single_axes(&problem.mesh);
        let assignments = |variable: usize, like: &[&Label]| {
            let by_blocks = problem.axis_assignments(variable, like[0], &classes, blocks);
            if by_blocks.is_empty() {
                return problem.axis_assignments(variable, like[0], &classes, &single);
            }
            by_blocks
        };
        let choices = Candidates::new(problem, &[wanted], assignments)?;
        if limit < NO_LIMIT && choices.n_entries() > MAX_ASSIGNMENT_ENTRIES {
            return None;
        }
        let found = solve_below(&choices.costs(), limit, Options::with_work(self.parent.work / 4));
        found.labels.map(|it| self.offer(choices.plan(&it)))
    }

    /// Improves the plan by changes of one block for each variable, all variables together, until that is no better.
    fn improve(&mut self, blocks: &[AxisSet]) {
        let problem = self.parent.problem;
        while !self.is_settled() {
            let plan = &self.found.plan;
            let neighbourhood = |variable: usize, here: &[&Label]| {
                if problem.pin(variable).is_some() {
                    return vec![here[0].clone()];
                }
                problem.neighbourhood(variable, here[0], blocks)
            };
            let choices =
                Candidates::new(problem, &[plan], neighbourhood).expect("a plan is near itself");
            let from = choices.positions(plan);
            let found =
                solve(&choices.costs(), from.as_deref(), Options::with_work(self.parent.work));
            let before = self.found.cost;
            self.offer(choices.plan(&found.labels));
            if self.found.cost > before - before / NEGLIGIBLE {
                return;
            }
        }
    }

    /// The best of all plans with any of these states in counts, with the proof as far as the work goes.
    fn search(&mut self, wanted: &[Vec<usize>]) {
        let problem = self.parent.problem;
        let instance = Instance::new(problem, Resolution::FINE);
        let mut kept = instance.refining(&self.parent.orbits, wanted, self.allowed);
        let here = instance.indices(&self.found.plan).expect("all axes are told apart");
        for (kept, state) in kept.iter_mut().zip(here) {
            if let Err(at) = kept.binary_search(&state) {
                kept.insert(at, state);
            }
        }
        if instance.n_entries(&kept) > MAX_ENTRIES {
            return;
        }
        let from = instance.positions(&kept, &self.found.plan);
        let is_small = problem.mesh.n_axes() <= N_AXES_AT_ONCE;
        let decomposition_work = if is_small { DECOMPOSITION_WORK } else { 0 };
        let found = solve(
            &instance.restricted(&kept),
            from.as_deref(),
            Options { decomposition_work, ..Options::with_work(self.parent.coarse_work) },
        );
        self.found.bound = self.found.bound.max(found.lower_bound.min(self.found.cost));
        self.found.largest_table = self.found.largest_table.max(found.largest_table);
        self.offer(instance.plan(&labels_at(&kept, &found.labels)));
    }

    /// The cost of a plan, which is kept if it is the best so far.
    fn offer(&mut self, plan: Plan) -> i64 {
        let problem = self.parent.problem;
        let plan = problem.completed(plan);
        let cost = problem.cost(&plan);
        if cost < self.found.cost {
            self.found.cost = cost;
            self.found.plan = plan;
        }
        cost
    }
}

/// Every axis as a block of its own.
fn single_axes(mesh: &Mesh) -> Vec<AxisSet> {
    (0..mesh.n_axes()).map(|axis| AxisSet::EMPTY.with(axis)).collect()
}

/// For each variable the states at these positions among the allowed ones.
fn labels_at_each(allowed: &[Vec<usize>], positions: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let of_variable = |(allowed, positions): (&Vec<usize>, &Vec<usize>)| {
        positions.iter().map(|&it| allowed[it]).collect()
    };
    allowed.iter().zip(positions).map(of_variable).collect()
}
