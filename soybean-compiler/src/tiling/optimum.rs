//! The plan of least cost: from counts of axes to blocks of them to single axes.
//!
//! 1. In counts ([`Resolution`]) there are few states, so that the least cost is found fast. No plan costs less.
//! 2. What was found is laid out in blocks of axes that fit it. Mostly some plan costs just as much; then it is proved optimal.
//! 3. If not, the search goes on in the same blocks and in others, with the states that can still be part of something better, and with few axes among all plans.

use super::{
    parts::{classes, partitions},
    problem::{Plan, Problem},
    resolution::Resolution,
    solve::{WORK, chosen, solve, within},
    view::View,
};

/// The most axes that are told apart, all of them, where that is needed for a proof.
const MAX_FINE_AXES: usize = 4;
/// The most entries of all tables together: 128 MB.
const MAX_ENTRIES: usize = 1 << 24;
/// The axes for which the work is stated; twice as much is done for each further one.
const N_AXES_AT_ONCE: usize = 3;
/// Partitions into blocks that are tried.
const N_LAYOUTS: usize = 8;
/// One part of a cost among as many is not worth further search.
const NEGLIGIBLE: i64 = 1 << 11;
/// Passes of the bound that rules out states in counts.
const N_PASSES: u64 = 8;

/// A plan, and what is known of those that cost less.
pub(super) struct Found {
    pub(super) plan: Plan,
    pub(super) cost: i64,
    /// No plan costs less than this.
    pub(super) bound: i64,
    /// The entries of the largest table.
    pub(super) largest_table: usize,
}

impl Found {
    pub(super) fn unproved(problem: &Problem<'_>, plan: Plan) -> Self {
        Self { cost: problem.cost(&plan), plan, bound: 0, largest_table: 0 }
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
    /// The work of each search.
    work: u64,
}

impl<'a> Searcher<'a> {
    pub(super) fn new(problem: &'a Problem<'a>) -> Self {
        let mesh = &problem.mesh;
        let counts = View::new(problem, Resolution::counts(mesh, &classes(problem)));
        Self { problem, counts, work: WORK << mesh.n_axes().saturating_sub(N_AXES_AT_ONCE) }
    }

    /// The view in counts.
    pub(super) fn counts(&self) -> &View<'a> {
        &self.counts
    }

    /// The best plan among these states in counts, no worse than the plans in hand.
    pub(super) fn best(&self, allowed: &[Vec<usize>], in_hand: &[&Plan], effort: Effort) -> Found {
        let costed = in_hand.iter().map(|it| (self.problem.cost(it), *it));
        let start = costed.min_by_key(|it| it.0);
        let from = start.and_then(|it| self.counts.positions(allowed, it.1));
        let costs = self.counts.restricted(allowed);
        let found = solve(&costs, from.as_deref(), self.work);
        let mut layout = Layout {
            searcher: self,
            allowed,
            found: Found {
                cost: start.map_or(i64::MAX, |it| it.0),
                plan: start.map_or_else(Vec::new, |it| it.1.clone()),
                bound: found.bound,
                largest_table: found.largest_table,
            },
        };
        let best_view = layout.lay_out(&chosen(allowed, &found.states), effort);
        if effort == Effort::Layout || layout.is_settled() {
            return layout.found;
        }
        let kept = chosen_each(allowed, &within(&costs, layout.found.cost, N_PASSES));
        layout.step(&best_view, &kept);
        if !layout.is_settled() {
            let fine = Resolution::fine(&self.problem.mesh);
            let is_fine = self.problem.mesh.n_axes() <= MAX_FINE_AXES;
            let view = if is_fine { View::new(self.problem, fine) } else { best_view };
            layout.search(&view, &kept);
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

impl<'a> Layout<'a> {
    /// Whether the plan is proved, or as good as proved where not all axes can be told apart.
    fn is_settled(&self) -> bool {
        let Found { cost, bound, .. } = self.found;
        let is_fine = self.searcher.problem.mesh.n_axes() <= MAX_FINE_AXES;
        cost - bound <= if is_fine { 0 } else { bound / NEGLIGIBLE }
    }

    /// The best plans with these states in counts, in one partition into blocks after the other until one does justice to them; gives the best view.
    fn lay_out(&mut self, states: &[usize], effort: Effort) -> View<'a> {
        let n_axes = self.searcher.problem.mesh.n_axes();
        let is_hasty = effort == Effort::Layout && n_axes > MAX_FINE_AXES;
        let n_layouts = if is_hasty { 1 } else { N_LAYOUTS };
        let mut best: Option<(i64, View<'a>)> = None;
        for blocks in partitions(&self.searcher.counts, states).into_iter().take(n_layouts) {
            let view = View::new(self.searcher.problem, Resolution::blocks(blocks));
            let cost = self.lay_out_in(&view, states);
            if best.as_ref().is_none_or(|it| cost < it.0) {
                best = Some((cost, view));
            }
            if self.is_settled() {
                break;
            }
        }
        best.expect("axes can be taken one by one").1
    }

    /// The cost of the best plan with these states in counts, as far as they can be laid out in this view.
    fn lay_out_in(&mut self, view: &View<'_>, states: &[usize]) -> i64 {
        let wanted: Vec<Vec<usize>> = states.iter().map(|&it| vec![it]).collect();
        let kept = view.standing_for(&self.searcher.counts, &wanted, self.allowed);
        let found = solve(&view.restricted(&kept), None, WORK / 4);
        self.learn(view, &chosen(&kept, &found.states))
    }

    /// The best plan of this view with any of these states in counts.
    fn search(&mut self, view: &View<'_>, wanted: &[Vec<usize>]) {
        let kept = self.kept(view, wanted);
        if view.n_entries(&kept) > MAX_ENTRIES {
            return;
        }
        let from = view.positions(&kept, &self.found.plan);
        let found = solve(&view.restricted(&kept), from.as_deref(), self.searcher.work);
        if view.resolution.is_fine() {
            self.found.bound = self.found.bound.max(found.bound.min(self.found.cost));
            self.found.largest_table = self.found.largest_table.max(found.largest_table);
        }
        self.learn(view, &chosen(&kept, &found.states));
    }

    /// Improves the plan by changes of one unit for each variable, all variables together, until that is no better.
    fn step(&mut self, view: &View<'_>, wanted: &[Vec<usize>]) {
        let kept = self.kept(view, wanted);
        while let Some(here) = view.states(&self.found.plan) {
            let near = |(variable, kept): (usize, &Vec<usize>)| {
                let is_near = |it: &usize| view.are_near(variable, here[variable], *it);
                kept.iter().copied().filter(is_near).collect()
            };
            let near: Vec<Vec<usize>> = kept.iter().enumerate().map(near).collect();
            let from = view.positions(&near, &self.found.plan);
            let found = solve(&view.restricted(&near), from.as_deref(), WORK);
            let before = self.found.cost;
            self.learn(view, &chosen(&near, &found.states));
            if self.found.cost > before - before / NEGLIGIBLE {
                return;
            }
        }
    }

    /// The states of a view with any of these states in counts, and those of the plan in hand.
    fn kept(&self, view: &View<'_>, wanted: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut kept = view.standing_for(&self.searcher.counts, wanted, self.allowed);
        if let Some(states) = view.states(&self.found.plan) {
            for (kept, state) in kept.iter_mut().zip(states) {
                if let Err(at) = kept.binary_search(&state) {
                    kept.insert(at, state);
                }
            }
        }
        kept
    }

    /// The cost of the plan of these states, which is kept if it is the best so far.
    fn learn(&mut self, view: &View<'_>, states: &[usize]) -> i64 {
        let problem = self.searcher.problem;
        let plan = problem.completed(view.plan(states));
        let cost = problem.cost(&plan);
        if cost < self.found.cost {
            self.found.cost = cost;
            self.found.plan = plan;
        }
        cost
    }
}

/// For each variable the states at these positions among the allowed ones.
fn chosen_each(allowed: &[Vec<usize>], positions: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let of_variable = |(allowed, positions): (&Vec<usize>, &Vec<usize>)| {
        positions.iter().map(|&it| allowed[it]).collect()
    };
    allowed.iter().zip(positions).map(of_variable).collect()
}
