//! The solver: elimination, message passing and mini-buckets in rounds, within a stated amount of
//! work.
//!
//! 1. Variables with few neighbors are eliminated exactly.
//! 2. If most variables repeat others, quotient problems give first assignments and the first
//!    messages.
//! 3. Passes of message passing raise the lower bound, decode assignments, which local search
//!    improves, and rule out labels. Once enough labels are gone, the next round begins with the
//!    problem that remains.
//! 4. Where passes stall, the search aims at a cost just above the bound. Few labels remain below
//!    such an aim, and mini-buckets handle the remaining variables. If they find that no assignment
//!    costs less than the aim, the bound rises to it. Otherwise they may find a better assignment;
//!    if neither happens, they grow.
//! 5. If the problem is a long chain, dual decomposition ([`super::decomposition`]) closes the gap.

use super::{
    problem::PairwiseProblem,
    reparametrization::Reparametrization,
    round::{Found, Round},
};

/// An assignment, and what is proved of it.
#[derive(Clone, Debug)]
pub struct Solution {
    /// The label of each variable.
    pub labels: Vec<usize>,
    /// The cost of the labels.
    pub cost: i64,
    /// No assignment costs less. The labels are optimal if this is their cost.
    pub lower_bound: i64,
    /// The number of entries of the largest table made.
    pub largest_table: usize,
    /// The work done, in table entries, without that of local search: at most as much again.
    pub work: u64,
}

/// The result of a search below a cost limit.
#[derive(Clone, Debug)]
pub struct Improvement {
    /// The best assignment found that costs less than the limit.
    pub labels: Option<Vec<usize>>,
    /// No assignment costs less; never more than the limit.
    pub lower_bound: i64,
    /// The number of entries of the largest table made.
    pub largest_table: usize,
    /// The work done, in table entries, without that of local search: at most as much again.
    pub work: u64,
}

/// The effort of a search. Work is counted in table entries, so that it does not depend on the
/// machine: 2^27 entries take about a second in an unoptimized build.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The number of table entries to visit.
    pub work: u64,
    /// The gap between cost and lower bound that ends the search, once an exact proof has turned
    /// out not to be cheap.
    pub gap: i64,
    /// The additional work of dual decomposition, if the gap is still open and the problem can be
    /// decomposed; 0 turns it off.
    pub decomposition_work: u64,
}

impl Options {
    /// Returns options for an exact proof within this much work, without dual decomposition.
    #[must_use]
    pub fn with_work(work: u64) -> Self {
        Self { work, gap: 0, decomposition_work: 0 }
    }
}

/// More than the cost of any assignment.
pub const NO_LIMIT: i64 = i64::MAX / 2;

/// The fraction of the work that goes into an exact proof before a gap may be left: 1/16.
const EXACT_SHARE: u64 = 16;

/// Searches for an assignment of the least cost. A good assignment to start from makes it faster.
///
/// # Panics
/// If the problem or the given assignment is malformed. Examples are a variable without
/// labels, a table of the wrong length, and an edge whose variables are not in increasing order.
#[must_use]
pub fn solve(problem: &PairwiseProblem, start: Option<&[usize]>, options: Options) -> Solution {
    let limit = start.map_or(NO_LIMIT, |labels| problem.cost(labels));
    let found = solve_below(problem, limit, options);
    let labels = match found.labels {
        Some(labels) => labels,
        None => start.map_or_else(|| vec![0; problem.unary.len()], <[usize]>::to_vec),
    };
    let cost = problem.cost(&labels);
    let lower_bound = found.lower_bound.min(cost);
    Solution { labels, cost, lower_bound, largest_table: found.largest_table, work: found.work }
}

/// Searches for an assignment that costs less than the limit, and of these for the cheapest.
///
/// # Panics
/// If the problem is malformed, as for [`solve`].
#[must_use]
pub fn solve_below(problem: &PairwiseProblem, limit: i64, options: Options) -> Improvement {
    Search::new(problem, limit, options).run()
}

/// A search that stops when its work is used up, and can go on with more.
pub struct Search {
    round: Round,
    budget: Budget,
}

impl Search {
    /// Returns a search for an assignment that costs less than the limit.
    ///
    /// # Panics
    /// If the problem is malformed, as for [`solve`].
    #[must_use]
    pub fn new(problem: &PairwiseProblem, limit: i64, options: Options) -> Self {
        problem.assert_valid();
        let mut budget = Budget::new(options);
        Self { round: Round::new(problem, limit, &mut budget), budget }
    }

    /// Searches until the gap is closed or the work is used up. Returns the best result so far, and
    /// the work of this run.
    #[must_use]
    pub fn run(&mut self) -> Improvement {
        self.round.run(&mut self.budget);
        let Found { labels, lower_bound, largest_table } = self.round.found();
        let work = std::mem::take(&mut self.budget.work_done);
        Improvement { labels, lower_bound, largest_table, work }
    }

    /// Adds work for the next [`Self::run`].
    pub fn add_work(&mut self, work: u64) {
        self.budget.add(work);
    }

    /// Lowers the limit, because an assignment of this cost is known.
    pub fn lower_limit(&mut self, limit: i64) {
        self.round.lower_limit(limit);
    }
}

/// Returns for each variable the labels that an assignment of at most this cost may have. Passes of
/// message passing rule out the others.
#[must_use]
pub fn labels_within(problem: &PairwiseProblem, limit: i64, n_passes: u64) -> Vec<Vec<usize>> {
    let mut reparametrization = Reparametrization::new(problem.clone());
    let mut kept: Vec<Vec<usize>> =
        problem.unary.iter().map(|it| (0..it.len()).collect()).collect();
    for _ in 0..n_passes {
        reparametrization.prune(limit, &mut kept);
    }
    kept
}

/// Returns the kept labels at these positions, one per variable.
///
/// # Panics
/// If a position is out of range.
#[must_use]
pub fn labels_at(kept: &[Vec<usize>], positions: &[usize]) -> Vec<usize> {
    kept.iter().zip(positions).map(|(kept, &position)| kept[position]).collect()
}

/// The effort that is left.
pub(crate) struct Budget {
    /// The work that is left.
    pub(crate) work: u64,
    /// The work done. It may exceed what was given by the last step.
    pub(crate) work_done: u64,
    gap: i64,
    /// The work that is left for local search. It has its own, so that proofs keep theirs.
    pub(crate) local_search_work: u64,
    /// The gap may be left once less work than this is left. Before that, the proof may be cheap.
    exact_until: u64,
    /// True until quotients have been tried.
    pub(crate) may_use_quotients: bool,
    /// The work of dual decomposition, until it has been tried.
    pub(crate) decomposition_work: u64,
}

impl Budget {
    pub(crate) fn new(Options { work, gap, decomposition_work }: Options) -> Self {
        Self {
            work,
            work_done: 0,
            gap,
            decomposition_work,
            local_search_work: work,
            exact_until: work - work / EXACT_SHARE,
            may_use_quotients: true,
        }
    }

    /// Returns the budget of a quotient: 1/`part` of the work that is left.
    pub(crate) fn of_quotient(&self, part: u64) -> Self {
        let options = Options { gap: self.gap, ..Options::with_work(self.work / part) };
        Self { may_use_quotients: false, ..Self::new(options) }
    }

    /// Returns the gap that may be left at this point of the search.
    pub(crate) fn gap(&self) -> i64 {
        if self.work < self.exact_until { self.gap } else { 0 }
    }

    pub(crate) fn spend(&mut self, work: u64) {
        self.work = self.work.saturating_sub(work);
        self.work_done += work;
    }

    /// Adds work. The proof has turned out not to be cheap.
    fn add(&mut self, work: u64) {
        self.work += work;
        self.local_search_work += work;
        self.exact_until = u64::MAX;
    }
}
