//! The plan of least cost: from counts of axes to blocks of them to single axes.
//!
//! 1. In counts ([`Resolution`]) there are few states, so that the least cost is found fast. No plan costs less.
//! 2. What was found is laid out in blocks of axes that fit it. Mostly some plan costs just as much; then it is proved optimal.
//! 3. If not, the plan is improved by changes of one block for each variable; and where there are few axes, all plans are searched that can still be better.

use soybean_minsum::{NO_LIMIT, Options, labels_at, labels_within, solve, solve_below};
use soybean_plan::{AxisSet, Mesh};

use super::{
    choices::Choices,
    parts::{classes, partitions},
    problem::{Choice, Plan, Problem, WORK},
    resolution::Resolution,
    view::View,
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
const N_LAYOUTS: usize = 8;
/// The most entries of the tables of a layout, where there is one already.
const MAX_LAYOUT_ENTRIES: usize = 1 << 19;
/// One part of a cost among as many is not worth further search.
const NEGLIGIBLE: i64 = 1 << 11;
/// Passes of the bound that rules out states in counts.
const N_PASSES: u64 = 8;

/// A plan, and what is known of those that cost less.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) plan: Plan,
    pub(super) cost: i64,
    /// No plan costs less than this.
    pub(super) bound: i64,
    /// The entries of the largest table.
    pub(super) largest_table: usize,
}

impl Found {
    /// A plan of which nothing else is known.
    pub(super) fn new(problem: &Problem<'_>, plan: Plan) -> Self {
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
    Layout,
    /// Until the best plan is proved, or the work is used up.
    Proof,
}

/// A problem, and its view in counts.
pub(super) struct Searcher<'a> {
    problem: &'a Problem<'a>,
    counts: View<'a>,
    /// The work of a search near a plan.
    work: u64,
    /// That of a search in counts, or of all axes told apart.
    work_in_counts: u64,
}

impl<'a> Searcher<'a> {
    pub(super) fn new(problem: &'a Problem<'a>) -> Self {
        let mesh = &problem.mesh;
        let counts = View::new(problem, Resolution::counts(mesh, &classes(problem)));
        let n_doublings = mesh.n_axes().saturating_sub(N_AXES_AT_ONCE).min(MOST_DOUBLINGS);
        let work = problem.work(WORK);
        Self { problem, counts, work, work_in_counts: work << n_doublings }
    }

    /// The view in counts.
    pub(super) fn counts(&self) -> &View<'a> {
        &self.counts
    }

    /// What is not worth further search where a plan costs this much: nothing is too little where all axes can be told apart.
    fn negligible(&self, cost: i64) -> i64 {
        if self.problem.mesh.n_axes() <= MAX_FINE_AXES { 0 } else { cost / NEGLIGIBLE }
    }

    /// The best plan among these states in counts, no worse than the plans in hand.
    pub(super) fn best(&self, allowed: &[Vec<usize>], in_hand: &[&Found], effort: Effort) -> Found {
        let start = in_hand.iter().min_by_key(|it| it.cost);
        let from = start.and_then(|it| self.counts.positions(allowed, &it.plan));
        let costs = self.counts.restricted(allowed);
        let options = Options {
            gap: self.negligible(start.map_or(0, |it| it.cost)),
            ..Options::with_work(self.work_in_counts)
        };
        let found = solve(&costs, from.as_deref(), options);
        let mut layout = Layout {
            searcher: self,
            allowed,
            found: Found {
                cost: start.map_or(i64::MAX, |it| it.cost),
                plan: start.map_or_else(Vec::new, |it| it.plan.clone()),
                bound: found.lower_bound,
                largest_table: found.largest_table,
            },
        };
        let blocks = layout.lay_out(&labels_at(allowed, &found.labels), effort);
        if effort == Effort::Layout || layout.is_settled() {
            return layout.found;
        }
        let mesh = &self.problem.mesh;
        layout.improve(&blocks);
        layout.improve(&single_axes(mesh));
        if !layout.is_settled() && mesh.n_axes() <= MAX_FINE_AXES {
            let kept = labels_within(&costs, layout.found.cost, N_PASSES);
            layout.search(&chosen_each(allowed, &kept));
        }
        layout.found
    }
}

/// The search for a plan of which counts are known.
struct Layout<'a> {
    searcher: &'a Searcher<'a>,
    /// The states in counts that plans may have.
    allowed: &'a [Vec<usize>],
    found: Found,
}

impl Layout<'_> {
    /// Whether the plan is proved, or as good as proved where not all axes can be told apart.
    fn is_settled(&self) -> bool {
        let Found { cost, bound, .. } = self.found;
        cost - bound <= self.searcher.negligible(bound)
    }

    /// The best plans with these states in counts, by one partition of the axes into blocks after the other until one does justice to them; gives the
    /// best partition.
    fn lay_out(&mut self, states: &[usize], effort: Effort) -> Vec<AxisSet> {
        let Searcher { problem, counts, .. } = self.searcher;
        let is_hasty = effort == Effort::Layout && problem.mesh.n_axes() > MAX_FINE_AXES;
        let n_layouts = if is_hasty { 1 } else { N_LAYOUTS };
        let wanted = counts.plan(states);
        let partitions = partitions(counts, states);
        let (mut best, mut least) = (0, NO_LIMIT);
        for (number, blocks) in partitions.iter().take(n_layouts).enumerate() {
            if let Some(cost) = self.lay_out_in(&wanted, blocks, least) {
                (best, least) = (number, cost);
            }
            if self.is_settled() {
                break;
            }
        }
        partitions.into_iter().nth(best).expect("axes can be taken one by one")
    }

    /// The cost of the best plan that is like this one by counts, if it can be laid out in blocks, is not too large, and costs less than the limit.
    fn lay_out_in(&mut self, wanted: &[Choice], blocks: &[AxisSet], limit: i64) -> Option<i64> {
        let problem = self.searcher.problem;
        let classes = self.searcher.counts.resolution.classes();
        let single = single_axes(&problem.mesh);
        let layouts = |variable: usize, like: &[&Choice]| {
            let by_blocks = problem.layouts(variable, like[0], &classes, blocks);
            if by_blocks.is_empty() {
                return problem.layouts(variable, like[0], &classes, &single);
            }
            by_blocks
        };
        let choices = Choices::new(problem, &[wanted], layouts)?;
        if limit < NO_LIMIT && choices.n_entries() > MAX_LAYOUT_ENTRIES {
            return None;
        }
        let found =
            solve_below(&choices.costs(), limit, Options::with_work(self.searcher.work / 4));
        found.labels.map(|it| self.learn(choices.plan(&it)))
    }

    /// Improves the plan by changes of one block for each variable, all variables together, until that is no better.
    fn improve(&mut self, blocks: &[AxisSet]) {
        let problem = self.searcher.problem;
        while !self.is_settled() {
            let plan = &self.found.plan;
            let near = |variable: usize, here: &[&Choice]| {
                if problem.pin(variable).is_some() {
                    return vec![here[0].clone()];
                }
                problem.near(variable, here[0], blocks)
            };
            let choices = Choices::new(problem, &[plan], near).expect("a plan is near itself");
            let from = choices.positions(plan);
            let found =
                solve(&choices.costs(), from.as_deref(), Options::with_work(self.searcher.work));
            let before = self.found.cost;
            self.learn(choices.plan(&found.labels));
            if self.found.cost > before - before / NEGLIGIBLE {
                return;
            }
        }
    }

    /// The best of all plans with any of these states in counts, with the proof as far as the work goes.
    fn search(&mut self, wanted: &[Vec<usize>]) {
        let problem = self.searcher.problem;
        let view = View::new(problem, Resolution::FINE);
        let mut kept = view.standing_for(&self.searcher.counts, wanted, self.allowed);
        let here = view.states(&self.found.plan).expect("all axes are told apart");
        for (kept, state) in kept.iter_mut().zip(here) {
            if let Err(at) = kept.binary_search(&state) {
                kept.insert(at, state);
            }
        }
        if view.n_entries(&kept) > MAX_ENTRIES {
            return;
        }
        let from = view.positions(&kept, &self.found.plan);
        let is_small = problem.mesh.n_axes() <= N_AXES_AT_ONCE;
        let decomposition_work = if is_small { DECOMPOSITION_WORK } else { 0 };
        let found = solve(
            &view.restricted(&kept),
            from.as_deref(),
            Options { decomposition_work, ..Options::with_work(self.searcher.work_in_counts) },
        );
        self.found.bound = self.found.bound.max(found.lower_bound.min(self.found.cost));
        self.found.largest_table = self.found.largest_table.max(found.largest_table);
        self.learn(view.plan(&labels_at(&kept, &found.labels)));
    }

    /// The cost of a plan, which is kept if it is the best so far.
    fn learn(&mut self, plan: Plan) -> i64 {
        let problem = self.searcher.problem;
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
fn chosen_each(allowed: &[Vec<usize>], positions: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let of_variable = |(allowed, positions): (&Vec<usize>, &Vec<usize>)| {
        positions.iter().map(|&it| allowed[it]).collect()
    };
    allowed.iter().zip(positions).map(of_variable).collect()
}
