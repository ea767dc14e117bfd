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
    decomposition::DualDecomposition,
    elimination::{Elimination, minimize},
    elimination_order::{EliminationOrder, Limits},
    local_search::LocalSearch,
    mini_buckets::eliminate_in_mini_buckets,
    problem::PairwiseProblem,
    progress::{Aim, N_PASSES, Progress},
    quotient::Quotient,
    reparametrization::{self, Pass, Reparametrization},
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

/// The work of elimination for one label combination, in entries of a pass.
pub(crate) const ENTRIES_OF_COMBINATION: u64 = 8;

/// The most work for the elimination of one variable before there is a bound.
const FIRST_WORK: u64 = 1 << 13;
/// The rounds of color refinement of the quotients that give assignments, the coarsest first.
const QUOTIENT_ROUNDS: [usize; 3] = [1, 2, 3];
/// Each quotient gets at most this part of the work that is left: 1/4.
const QUOTIENT_PART: u64 = 4;
/// The rounds of color refinement of the quotient that gives messages.
const MESSAGE_ROUNDS: usize = 2;
/// The work for messages of the quotient, in passes of the whole problem.
const QUOTIENT_PASSES: u64 = 2;
/// Each assignment gets at most this part of the work that is left for local search: 1/16.
const LOCAL_SEARCH_PART: u64 = 16;
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
    problem.assert_valid();
    let mut budget = Budget::new(options);
    let Found { labels, lower_bound, largest_table } = refine(problem, limit, &mut budget);
    Improvement { labels, lower_bound, largest_table, work: budget.work_done }
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
struct Budget {
    /// The work that is left.
    work: u64,
    /// The work done. It may exceed what was given by the last step.
    work_done: u64,
    gap: i64,
    /// The work that is left for local search. It has its own, so that proofs keep theirs.
    local_search_work: u64,
    /// The gap may be left once less work than this is left. Before that, the proof may be cheap.
    exact_until: u64,
    /// True until quotients have been tried.
    may_use_quotients: bool,
    /// The work of dual decomposition, until it has been tried.
    decomposition_work: u64,
}

impl Budget {
    fn new(Options { work, gap, decomposition_work }: Options) -> Self {
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

    /// Returns the gap that may be left at this point of the search.
    fn gap(&self) -> i64 {
        if self.work < self.exact_until { self.gap } else { 0 }
    }

    fn spend(&mut self, work: u64) {
        self.work = self.work.saturating_sub(work);
        self.work_done += work;
    }
}

/// The result of a round of the search, as in [`Improvement`].
struct Found {
    labels: Option<Vec<usize>>,
    lower_bound: i64,
    largest_table: usize,
}

/// Eliminates what is easy, then searches the remaining core.
fn refine(problem: &PairwiseProblem, limit: i64, budget: &mut Budget) -> Found {
    let mut elimination = Elimination::new(problem);
    let limits = Limits { n_neighbors: 2, work_each: FIRST_WORK, ..Limits::NONE };
    let order = EliminationOrder::new(problem, limits);
    elimination.run(&order);
    budget.spend(elimination.n_combinations * ENTRIES_OF_COMBINATION);
    let (core, numbers) = elimination.remaining();
    let constant = elimination.constant();
    let complete = |inner: &[usize]| {
        let mut labels = vec![0; problem.unary.len()];
        numbers.iter().zip(inner).for_each(|(&number, &label)| labels[number] = label);
        elimination.complete(&mut labels);
        labels
    };
    let inner = Core::new(core, limit - constant).solved(budget);
    Found {
        labels: inner.labels.as_deref().map(complete),
        lower_bound: inner.lower_bound + constant,
        largest_table: inner.largest_table.max(elimination.largest_table),
    }
}

/// The part of a problem that was not eliminated at once, and the best results so far.
struct Core {
    problem: PairwiseProblem,
    /// The cost below which assignments are wanted.
    limit: i64,
    best: Found,
    /// The work of a pass.
    pass_work: u64,
}

impl Core {
    fn new(problem: PairwiseProblem, limit: i64) -> Self {
        let pass_work = reparametrization::pass_work(&problem);
        let best = Found { labels: None, lower_bound: i64::MIN, largest_table: 0 };
        Self { problem, limit, best, pass_work }
    }

    fn solved(mut self, budget: &mut Budget) -> Found {
        if !self.try_elimination(N_PASSES * self.pass_work, budget) {
            self.improve(budget);
            if !self.is_settled(budget) {
                self.decompose(budget);
            }
        }
        self.best
    }

    /// Returns the first reparametrization. If the problem repeats, quotients give first
    /// assignments and the first messages.
    fn reparametrized(&mut self, budget: &mut Budget) -> Reparametrization {
        let may_use_quotients = std::mem::take(&mut budget.may_use_quotients);
        let mut of_messages = None;
        for n_rounds in QUOTIENT_ROUNDS.into_iter().filter(|_| may_use_quotients) {
            let Some(quotient) = Quotient::new(&self.problem, n_rounds) else { break };
            self.try_quotient(&quotient, budget);
            if n_rounds == MESSAGE_ROUNDS {
                of_messages = Some(quotient);
            }
        }
        let Some(quotient) = of_messages else {
            return Reparametrization::new(self.problem.clone());
        };
        let mut passes = Reparametrization::new(quotient.problem.clone());
        let n_passes = self.pass_work / reparametrization::pass_work(&quotient.problem);
        for _ in 0..QUOTIENT_PASSES * n_passes {
            passes.pass(self.limit);
        }
        budget.spend(QUOTIENT_PASSES * self.pass_work);
        let messages = quotient.lift_messages(&self.problem, &passes);
        Reparametrization::from_messages(self.problem.clone(), messages)
    }

    /// Searches a quotient for an assignment that is better than those of coarser quotients.
    fn try_quotient(&mut self, quotient: &Quotient, budget: &mut Budget) {
        let options =
            Options { gap: budget.gap, ..Options::with_work(budget.work / QUOTIENT_PART) };
        let mut inner = Budget { may_use_quotients: false, ..Budget::new(options) };
        let found = refine(&quotient.problem, self.limit, &mut inner);
        budget.spend(inner.work_done);
        if let Some(labels) = found.labels {
            self.offer_improved(quotient.lift(&labels), budget);
        }
    }

    /// Searches by dual decomposition, if there is work for it and the problem can be split.
    fn decompose(&mut self, budget: &mut Budget) {
        let work = std::mem::take(&mut budget.decomposition_work);
        if work == 0 {
            return;
        }
        let Some(decomposition) = DualDecomposition::new(&self.problem, work) else { return };
        let found = decomposition.solve_below(self.limit);
        budget.work_done += found.work;
        self.best.lower_bound = self.best.lower_bound.max(found.lower_bound);
        if let Some(labels) = found.labels {
            self.offer(labels);
        }
    }

    /// Alternates passes and mini-buckets until the core is settled or the work is used up.
    fn improve(&mut self, budget: &mut Budget) {
        let mut reparametrization = self.reparametrized(budget);
        let n_before = n_labels(&self.problem.unary);
        let mut progress = Progress::new();
        let mut aim = Aim::new();
        for n_passes in 1.. {
            let within = self.pass(&mut reparametrization, self.limit, budget);
            if self.is_settled(budget) || budget.work == 0 {
                return;
            }
            let fraction_gone = if n_passes < N_PASSES { 4 } else { 16 };
            if n_labels(&within) < n_before - n_before / fraction_gone {
                return self.solve_restricted(&reparametrization, &within, budget);
            }
            if progress.is_slow(self.limit - reparametrization.lower_bound) {
                self.aim_below(&mut reparametrization, &mut aim, budget);
                if self.is_settled(budget) || budget.work == 0 {
                    return;
                }
            }
        }
    }

    /// Runs a pass. Returns the labels that an assignment below the limit may have.
    fn pass(
        &mut self,
        reparametrization: &mut Reparametrization,
        limit: i64,
        budget: &mut Budget,
    ) -> Vec<Vec<usize>> {
        let Pass { within, decoded } = reparametrization.pass(limit - 1);
        budget.spend(self.pass_work);
        self.offer_improved(decoded, budget);
        let is_infeasible = within.iter().any(Vec::is_empty);
        let reached = if is_infeasible { limit } else { reparametrization.lower_bound };
        self.best.lower_bound = self.best.lower_bound.max(reached);
        within
    }

    /// Searches in mini-buckets below an aim. A lower aim leaves fewer labels, and so larger tables
    /// fit into a bucket.
    fn aim_below(
        &mut self,
        reparametrization: &mut Reparametrization,
        aim: &mut Aim,
        budget: &mut Budget,
    ) {
        let (least, most) = (self.best.lower_bound, self.limit);
        let target = aim.target(least, most);
        let within = self.pass(reparametrization, target, budget);
        if self.best.lower_bound < target {
            aim.expected = self.fill_buckets(reparametrization, &within, aim.bucket, budget);
            self.best.lower_bound = self.best.lower_bound.max(aim.expected.min(target));
        }
        if self.best.lower_bound >= target {
            aim.was_proved();
        } else if self.limit == most {
            aim.was_missed();
        }
    }

    /// Runs mini-bucket elimination over some labels. Returns the lower bound for these labels.
    fn fill_buckets(
        &mut self,
        reparametrization: &Reparametrization,
        within: &[Vec<usize>],
        bucket: u64,
        budget: &mut Budget,
    ) -> i64 {
        let restricted = reparametrization.restricted(within);
        let found = eliminate_in_mini_buckets(&restricted, bucket, budget.work);
        budget.spend(found.work);
        self.best.largest_table = self.best.largest_table.max(found.largest_table);
        self.offer(labels_at(within, &found.labels));
        found.lower_bound
    }

    /// Starts the next round over the labels that assignments below the limit may have.
    fn solve_restricted(
        &mut self,
        reparametrization: &Reparametrization,
        within: &[Vec<usize>],
        budget: &mut Budget,
    ) {
        let inner = refine(&reparametrization.restricted(within), self.limit, budget);
        self.best.lower_bound = self.best.lower_bound.max(inner.lower_bound);
        self.best.largest_table = self.best.largest_table.max(inner.largest_table);
        if let Some(labels) = inner.labels {
            self.offer(labels_at(within, &labels));
        }
    }

    /// Improves an assignment by local search, and keeps it if it costs less than the limit.
    fn offer_improved(&mut self, mut labels: Vec<usize>, budget: &mut Budget) {
        let work = budget.local_search_work / LOCAL_SEARCH_PART;
        let done = LocalSearch::new(&self.problem).improve(&mut labels, work);
        budget.local_search_work = budget.local_search_work.saturating_sub(done);
        self.offer(labels);
    }

    /// Keeps an assignment if it costs less than the limit, and lowers the limit to its cost.
    fn offer(&mut self, labels: Vec<usize>) {
        let cost = self.problem.cost(&labels);
        if cost < self.limit {
            self.limit = cost;
            self.best.labels = Some(labels);
        }
    }

    /// Eliminates all variables if that takes at most this much work. Returns whether it did.
    fn try_elimination(&mut self, work: u64, budget: &mut Budget) -> bool {
        let limits = Limits { work: work / ENTRIES_OF_COMBINATION, ..Limits::NONE };
        let order = EliminationOrder::new(&self.problem, limits);
        if order.is_complete {
            let (labels, elimination) = minimize(&self.problem, &order);
            budget.spend(elimination.n_combinations * ENTRIES_OF_COMBINATION);
            self.best.lower_bound = self.problem.cost(&labels).min(self.limit);
            self.best.largest_table = self.best.largest_table.max(elimination.largest_table);
            self.offer(labels);
        }
        order.is_complete
    }

    /// Returns whether the gap between the limit and the lower bound is closed, or small enough.
    fn is_settled(&mut self, budget: &Budget) -> bool {
        self.best.lower_bound = self.best.lower_bound.min(self.limit);
        self.limit - self.best.lower_bound <= budget.gap()
    }
}

fn n_labels<T>(of_variables: &[Vec<T>]) -> usize {
    of_variables.iter().map(Vec::len).sum()
}
