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
    /// One layout of what is best in counts.
    OneLayout,
    /// Until the best plan is proved, or the work is used up.
    Proof,
}

/// A problem, and its view in counts.
pub(super) struct Searcher<'a> {
    problem: &'a Problem<'a>,
    counts: View<'a>,
}

impl<'a> Searcher<'a> {
    pub(super) fn new(problem: &'a Problem<'a>) -> Self {
        let mesh = &problem.mesh;
        let counts = View::new(problem, Resolution::counts(mesh, &classes(problem)));
        Self { problem, counts }
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
        let found = solve(&costs, from.as_deref(), WORK);
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
        let states = chosen(allowed, &found.states);
        let mut blocks = partitions(&self.counts, &states).into_iter();
        let first = blocks.next().expect("axes can be taken one by one");
        layout.lay_out(&View::new(self.problem, Resolution::blocks(first.clone())), &states);
        if effort == Effort::OneLayout || layout.found.is_optimal() {
            return layout.found;
        }
        let limit = layout.found.cost;
        let kept = chosen_each(allowed, &within(&costs, limit, N_PASSES));
        for blocks in [first].into_iter().chain(blocks.take(N_LAYOUTS)) {
            layout.search(&View::new(self.problem, Resolution::blocks(blocks)), &kept);
            if layout.found.is_optimal() {
                return layout.found;
            }
        }
        if self.problem.mesh.n_axes() <= MAX_FINE_AXES {
            let fine = View::new(self.problem, Resolution::fine(&self.problem.mesh));
            layout.lay_out(&fine, &states);
            layout.search(&fine, &kept);
        }
        layout.found
    }
}

/// Further partitions into blocks that are tried.
const N_LAYOUTS: usize = 2;

/// The search for a plan of which counts are known.
struct Layout<'a> {
    searcher: &'a Searcher<'a>,
    /// The states in counts that plans may have.
    allowed: &'a [Vec<usize>],
    found: Found,
}

impl Layout<'_> {
    /// The best plan with these states in counts, as far as they can be laid out in this view.
    fn lay_out(&mut self, view: &View<'_>, states: &[usize]) {
        let wanted: Vec<Vec<usize>> = states.iter().map(|&it| vec![it]).collect();
        let kept = view.standing_for(&self.searcher.counts, &wanted, self.allowed);
        let found = solve(&view.restricted(&kept), None, WORK / 4);
        self.learn(view, &chosen(&kept, &found.states));
    }

    /// The best plan of this view with any of these states in counts.
    fn search(&mut self, view: &View<'_>, wanted: &[Vec<usize>]) {
        let mut kept = view.standing_for(&self.searcher.counts, wanted, self.allowed);
        if let Some(states) = view.states(&self.found.plan) {
            for (kept, state) in kept.iter_mut().zip(states) {
                if let Err(at) = kept.binary_search(&state) {
                    kept.insert(at, state);
                }
            }
        }
        if view.n_entries(&kept) > MAX_ENTRIES {
            return;
        }
        let from = view.positions(&kept, &self.found.plan);
        let found = solve(&view.restricted(&kept), from.as_deref(), WORK);
        if view.resolution.is_fine() {
            self.found.bound = self.found.bound.max(found.bound.min(self.found.cost));
            self.found.largest_table = self.found.largest_table.max(found.largest_table);
        }
        self.learn(view, &chosen(&kept, &found.states));
    }

    fn learn(&mut self, view: &View<'_>, states: &[usize]) {
        let problem = self.searcher.problem;
        let plan = problem.completed(view.plan(states));
        let cost = problem.cost(&plan);
        if cost < self.found.cost {
            self.found.cost = cost;
            self.found.plan = plan;
        }
    }
}

/// For each variable the states at these positions among the allowed ones.
fn chosen_each(allowed: &[Vec<usize>], positions: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let of_variable = |(allowed, positions): (&Vec<usize>, &Vec<usize>)| {
        positions.iter().map(|&it| allowed[it]).collect()
    };
    allowed.iter().zip(positions).map(of_variable).collect()
}
