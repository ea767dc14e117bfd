//! Coarse-to-fine search for the plan of least cost (as in Raphael 2001): from orbits of axes to
//! blocks of axes to single axes.
//!
//! 1. Orbits ([`Resolution`]) have few labels, so their least cost is found fast. It is a lower
//!    bound of all plans.
//! 2. The solution is lifted: axes are assigned in blocks that fit it. Mostly some assignment costs
//!    as much as the orbits; then it is proved optimal.
//! 3. If not, the plan is improved by changing one block per variable. On meshes of few axes, all
//!    plans that can still be better are searched.
//! 4. If the gap is still wide, the search goes on with more work (`wide_gap.rs`).

mod orbit_search;
mod wide_gap;

use soybean_minsum::{
    NO_LIMIT, Options, PairwiseProblem, Search, labels_at, labels_within, solve, solve_below,
};
use soybean_plan::{AxisSet, Mesh};

use super::{
    axis_partition::{axis_partitions, legal_partitions, symmetry_classes},
    candidates::Candidates,
    effort::{SearchEffort, WorkBudget, is_wide},
    instance::Instance,
    problem::{Label, Plan, TilingProblem, WORK},
    resolution::Resolution,
};
use orbit_search::OrbitSearch;

/// The most axes for which single axes are searched.
const MAX_FINE_AXES: usize = 4;
/// The most entries of the tables of all edges, counting shared tables once per edge.
const MAX_ENTRIES: usize = 1 << 26;
/// A baseline has 1/8 of the work. The search of orbits takes at most 1/2 of the work that is left,
/// an axis assignment 1/4, and an improvement 1/2.
const BASELINE_PART: u64 = 8;
const ORBITS_PART: u64 = 2;
const ASSIGNMENT_PART: u64 = 4;
const IMPROVEMENT_PART: u64 = 2;
/// The work of making a table's entry, and of giving an edge its table.
const ENTRY_WORK: u64 = 1 << 8;
const EDGE_WORK: u64 = 1 << 8;
/// The passes for which there must be work before single axes are searched.
const MIN_PASSES: u64 = 4;
/// The work of a proof by dual decomposition on meshes of few axes.
const DECOMPOSITION_WORK: u64 = 1 << 35;
/// The number of axes for which work is stated. It doubles with each of the next few axes.
const N_BASE_AXES: usize = 3;
const MAX_DOUBLINGS: usize = 3;
/// The most entries of the tables of an axis assignment, once one has been found.
const MAX_ASSIGNMENT_ENTRIES: usize = 1 << 19;
/// Gaps below 1/2048 of the cost are not pursued.
const NEGLIGIBLE: i64 = 1 << 11;
/// The number of passes that rule out orbits.
const N_PASSES: u64 = 8;

/// A plan with a lower bound.
#[derive(Clone)]
pub(super) struct BoundedPlan {
    pub(super) plan: Plan,
    pub(super) cost: i64,
    /// No plan costs less.
    pub(super) lower_bound: i64,
    /// The number of entries of the largest table.
    pub(super) largest_table: usize,
}

impl BoundedPlan {
    /// Returns a plan without a bound.
    pub(super) fn new(problem: &TilingProblem<'_>, plan: Plan) -> Self {
        Self { cost: problem.cost(&plan), plan, lower_bound: 0, largest_table: 0 }
    }

    /// Returns the plan without its bound, which was proved for a part of all plans only.
    pub(super) fn unproved(self) -> Self {
        Self { lower_bound: 0, largest_table: 0, ..self }
    }
}

/// The depth of a search.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// An axis assignment of the best orbits.
    Assignment,
    /// A proof of the best plan, as far as the work allows.
    Proof,
    /// The same, with more work where the gap is still wide.
    NarrowGap,
    /// The same, with more work unless the gap is closed.
    MoreWork,
}

/// A tiling problem, and its instance by orbits.
pub(super) struct CoarseToFine<'a> {
    problem: &'a TilingProblem<'a>,
    orbits: Instance<'a>,
    /// The work of a search among candidates.
    work: u64,
    /// The work of a search among orbits or among single axes.
    coarse_work: u64,
    /// The work that is left to all of them.
    budget: WorkBudget,
}

impl<'a> CoarseToFine<'a> {
    pub(super) fn new(problem: &'a TilingProblem<'a>, effort: SearchEffort) -> Self {
        let mesh = &problem.mesh;
        let orbits = Instance::new(problem, Resolution::orbits(mesh, &symmetry_classes(problem)));
        let n_doublings = mesh.n_axes().saturating_sub(N_BASE_AXES).min(MAX_DOUBLINGS);
        let work = problem.work(WORK);
        let budget = WorkBudget::new(effort);
        Self { problem, orbits, work, coarse_work: work << n_doublings, budget }
    }

    /// Returns the instance by orbits.
    pub(super) fn orbits(&self) -> &Instance<'a> {
        &self.orbits
    }

    /// Returns the gap that is not pursued at this cost: none if single axes can be searched.
    fn negligible(&self, cost: i64) -> i64 {
        if self.problem.mesh.n_axes() <= MAX_FINE_AXES { 0 } else { cost / NEGLIGIBLE }
    }

    /// Returns the best plan among these orbits, no worse than the plans in hand.
    pub(super) fn best(
        &self,
        allowed: &[Vec<usize>],
        in_hand: &[&BoundedPlan],
        depth: Depth,
    ) -> BoundedPlan {
        let start = in_hand.iter().min_by_key(|it| it.cost);
        let from = start.and_then(|it| self.orbits.positions(allowed, &it.plan));
        let costs = self.orbits.restricted(allowed);
        let of_baseline = self.budget.part(BASELINE_PART);
        let budget = match depth {
            Depth::Assignment => &of_baseline,
            Depth::Proof | Depth::NarrowGap | Depth::MoreWork => &self.budget,
        };
        let granted = budget.granted(self.coarse_work, ORBITS_PART);
        let options = Options {
            gap: self.negligible(start.map_or(0, |it| it.cost)),
            ..Options::with_work(granted)
        };
        let limit = from.as_deref().map_or(NO_LIMIT, |it| costs.cost(it));
        let mut search = Search::new(&costs, limit, options);
        let found = search.run();
        // The last step of a search can exceed what was granted by far. The work of the refinement,
        // which finds better plans, is not taken for that.
        budget.spend(found.work.min(granted));
        let labels = found.labels.or(from).expect("all assignments are below no limit");
        let cost = costs.cost(&labels);
        let mut orbits = OrbitSearch { parent: self, allowed, costs: &costs, search, labels, cost };
        if depth != Depth::Assignment && is_wide(orbits.cost, found.lower_bound) {
            orbits.improve();
        }
        let mut refinement = Refinement {
            parent: self,
            budget,
            allowed,
            found: BoundedPlan {
                cost: start.map_or(i64::MAX, |it| it.cost),
                plan: start.map_or_else(Vec::new, |it| it.plan.clone()),
                lower_bound: found.lower_bound,
                largest_table: found.largest_table,
            },
        };
        refinement.assign_axes(&labels_at(allowed, &orbits.labels), depth);
        if depth == Depth::Assignment {
            return refinement.found;
        }
        refinement.improve(&single_axes(&self.problem.mesh), IMPROVEMENT_PART);
        refinement.search_single_axes(&costs);
        let goes_on = match depth {
            Depth::Assignment | Depth::Proof => false,
            Depth::NarrowGap => is_wide(refinement.found.cost, refinement.found.lower_bound),
            Depth::MoreWork => !refinement.is_settled(),
        };
        if goes_on && self.budget.effort.may_grow() {
            refinement.narrow_gap(&mut orbits);
        }
        refinement.found
    }

    /// Returns the labels in the orbit of `like` whose axes are split by blocks, or all labels of
    /// the orbit if no blocks fit.
    fn assignments(&self, variable: usize, like: &Label, blocks: &[AxisSet]) -> Vec<Label> {
        let (problem, classes) = (self.problem, self.orbits.resolution.classes());
        let by_blocks = problem.axis_assignments(variable, like, &classes, blocks);
        if by_blocks.is_empty() {
            return problem.axis_assignments(variable, like, &classes, &single_axes(&problem.mesh));
        }
        by_blocks
    }
}

/// The search for a plan with given orbits.
struct Refinement<'a> {
    parent: &'a CoarseToFine<'a>,
    /// The work that is left.
    budget: &'a WorkBudget,
    /// The orbits that plans may have.
    allowed: &'a [Vec<usize>],
    found: BoundedPlan,
}

impl Refinement<'_> {
    /// Returns whether the gap is closed, or small enough on meshes whose single axes are not
    /// searched.
    fn is_settled(&self) -> bool {
        let BoundedPlan { cost, lower_bound, .. } = self.found;
        cost - lower_bound <= self.parent.negligible(lower_bound)
    }

    /// Assigns axes to these orbits, by one partition into blocks after the other until the gap is
    /// closed. For a proof, the plan is improved by the same blocks.
    fn assign_axes(&mut self, labels: &[usize], depth: Depth) {
        let CoarseToFine { problem, orbits, .. } = self.parent;
        let is_quick = depth == Depth::Assignment && problem.mesh.n_axes() > MAX_FINE_AXES;
        let wanted = orbits.plan(labels);
        let partitions = match is_quick {
            true => axis_partitions(orbits, labels)[..1].to_vec(),
            false => legal_partitions(orbits, labels),
        };
        let mut limit = NO_LIMIT;
        for blocks in &partitions {
            if let Some(cost) = self.assign_by_blocks(&wanted, blocks, limit) {
                if depth != Depth::Assignment {
                    self.improve(blocks, IMPROVEMENT_PART);
                }
                limit = cost.min(self.found.cost);
            }
            if self.is_settled() || self.budget.is_used_up() {
                break;
            }
        }
    }

    /// Returns the cost of the best assignment of these orbits by blocks. Returns `None` if there
    /// is none below the limit, or if its tables are too large.
    fn assign_by_blocks(
        &mut self,
        wanted: &[Label],
        blocks: &[AxisSet],
        limit: i64,
    ) -> Option<i64> {
        let problem = self.parent.problem;
        let assignments =
            |variable: usize, like: &[&Label]| self.parent.assignments(variable, like[0], blocks);
        let candidates = Candidates::new(problem, &[wanted], assignments)?;
        self.budget.spend(self.work_of_tables(candidates.n_entries()));
        if limit < NO_LIMIT && candidates.n_entries() > MAX_ASSIGNMENT_ENTRIES {
            return None;
        }
        let options =
            Options::with_work(self.budget.granted(self.parent.work / 4, ASSIGNMENT_PART));
        let found = solve_below(&candidates.costs(), limit, options);
        self.budget.spend(found.work);
        found.labels.map(|it| self.offer(candidates.plan(&it)))
    }

    /// Returns the work of making distinct tables with this many entries in all.
    fn work_of_tables(&self, n_entries: usize) -> u64 {
        let problem = self.parent.problem;
        let n_edges = problem.edges.len() + problem.halo_edges.len();
        ENTRY_WORK * n_entries as u64 + EDGE_WORK * n_edges as u64
    }

    /// Improves the plan until no change of one block per variable helps. All variables change
    /// together (a very large neighborhood, Ahuja et al. 2002). Each change takes at most 1/`part`
    /// of the work that is left.
    fn improve(&mut self, blocks: &[AxisSet], part: u64) {
        let problem = self.parent.problem;
        while !self.is_settled() && !self.budget.is_used_up() {
            let plan = &self.found.plan;
            let neighborhood = |variable: usize, here: &[&Label]| {
                if problem.pin(variable).is_some() {
                    return vec![here[0].clone()];
                }
                problem.neighborhood(variable, here[0], blocks)
            };
            let candidates = Candidates::new(problem, &[plan], neighborhood)
                .expect("a plan is in its neighborhood");
            self.budget.spend(self.work_of_tables(candidates.n_entries()));
            let from = candidates.positions(plan);
            let options = Options::with_work(self.budget.granted(self.parent.work, part));
            let found = solve(&candidates.costs(), from.as_deref(), options);
            self.budget.spend(found.work);
            let before = self.found.cost;
            self.offer(candidates.plan(&found.labels));
            if self.found.cost > before - before / NEGLIGIBLE {
                return;
            }
        }
    }

    /// Searches all plans on meshes of few axes, given the costs of the allowed orbits.
    fn search_single_axes(&mut self, costs: &PairwiseProblem) {
        let may_go_on = !self.is_settled() && !self.budget.is_used_up();
        if may_go_on && self.parent.problem.mesh.n_axes() <= MAX_FINE_AXES {
            let kept = labels_within(costs, self.found.cost, N_PASSES);
            self.search(&labels_at_each(self.allowed, &kept));
        }
    }

    /// Searches all plans with any of these orbits, with a proof as far as the work allows.
    fn search(&mut self, wanted: &[Vec<usize>]) {
        let problem = self.parent.problem;
        let instance = Instance::new(problem, Resolution::FINE);
        let mut kept = instance.refining(&self.parent.orbits, wanted, self.allowed);
        let here = instance.indices(&self.found.plan).expect("single axes have all labels");
        for (kept, label) in kept.iter_mut().zip(here) {
            if let Err(at) = kept.binary_search(&label) {
                kept.insert(at, label);
            }
        }
        let n_entries = instance.n_entries(&kept);
        if n_entries > MAX_ENTRIES || self.budget.left() < MIN_PASSES * n_entries as u64 {
            return;
        }
        let from = instance.positions(&kept, &self.found.plan);
        let is_small = problem.mesh.n_axes() <= N_BASE_AXES;
        let wanted = if is_small { DECOMPOSITION_WORK } else { 0 };
        let decomposition_work = self.budget.of_decomposition(wanted);
        let work = self.budget.granted(self.parent.coarse_work, 1);
        let options = Options { decomposition_work, ..Options::with_work(work) };
        let found = solve(&instance.restricted(&kept), from.as_deref(), options);
        self.found.lower_bound = self.found.lower_bound.max(found.lower_bound.min(self.found.cost));
        self.found.largest_table = self.found.largest_table.max(found.largest_table);
        self.offer(instance.plan(&labels_at(&kept, &found.labels)));
    }

    /// Returns the cost of a plan, and keeps the plan if it is the best one so far.
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

/// Returns every axis as a block of its own.
fn single_axes(mesh: &Mesh) -> Vec<AxisSet> {
    (0..mesh.n_axes()).map(|axis| AxisSet::EMPTY.with(axis)).collect()
}

/// Returns the allowed labels at these positions, for each variable.
fn labels_at_each(allowed: &[Vec<usize>], positions: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let of_variable = |(allowed, positions): (&Vec<usize>, &Vec<usize>)| {
        positions.iter().map(|&it| allowed[it]).collect()
    };
    allowed.iter().zip(positions).map(of_variable).collect()
}
