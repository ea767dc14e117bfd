//! A round of the search: it eliminates what is easy, then searches the remaining core.

use super::{
    decomposition::DualDecomposition,
    elimination::{Elimination, minimize},
    elimination_order::{EliminationOrder, Limits},
    local_search::LocalSearch,
    mini_buckets::eliminate_in_mini_buckets,
    problem::PairwiseProblem,
    progress::{Aim, N_PASSES, Progress},
    quotient::{ColorRefinement, Quotient},
    reparametrization::{self, Pass, Reparametrization},
    solve::{Budget, labels_at},
};

/// The work of elimination for one label combination, in entries of a pass.
pub(crate) const ENTRIES_OF_COMBINATION: u64 = 8;

/// The most work for the elimination of one variable before there is a bound.
const FIRST_WORK: u64 = 1 << 13;
/// The most rounds of color refinement. After each, a quotient gives an assignment.
const QUOTIENT_ROUNDS: usize = 3;
/// Each quotient gets at most this part of the work that is left: 1/4.
const QUOTIENT_PART: u64 = 4;
/// The rounds of color refinement of the quotient that gives messages.
const MESSAGE_ROUNDS: usize = 2;
/// The work for messages of the quotient, in passes of the whole problem.
const QUOTIENT_PASSES: u64 = 2;
/// Each assignment gets at most this part of the work that is left for local search: 1/16.
const LOCAL_SEARCH_PART: u64 = 16;
/// The result of a round, as in [`Improvement`](super::Improvement).
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) labels: Option<Vec<usize>>,
    pub(crate) lower_bound: i64,
    pub(crate) largest_table: usize,
}

/// A problem whose easy variables are eliminated.
pub(crate) struct Round {
    elimination: Elimination,
    /// The numbers of the variables that remain.
    remaining: Vec<usize>,
    n_variables: usize,
    core: Core,
}

impl Round {
    /// Eliminates what is easy.
    pub(crate) fn new(problem: &PairwiseProblem, limit: i64, budget: &mut Budget) -> Self {
        let mut elimination = Elimination::new(problem);
        let limits = Limits { n_neighbors: 2, work_each: FIRST_WORK, ..Limits::NONE };
        let order = EliminationOrder::new(problem, limits);
        elimination.run(&order);
        budget.spend(elimination.n_combinations * ENTRIES_OF_COMBINATION);
        let (core, remaining) = elimination.remaining();
        let core = Core::new(core, limit - elimination.constant());
        Self { elimination, remaining, n_variables: problem.unary.len(), core }
    }

    /// Searches the core until it is settled or the work is used up.
    pub(crate) fn run(&mut self, budget: &mut Budget) {
        self.core.run(budget);
    }

    /// Lowers the limit.
    pub(crate) fn lower_limit(&mut self, limit: i64) {
        self.core.lower_limit(limit - self.elimination.constant());
    }

    /// Returns the best result so far.
    pub(crate) fn found(&self) -> Found {
        let best = &self.core.best;
        let complete = |inner: &Vec<usize>| {
            let mut labels = vec![0; self.n_variables];
            self.remaining.iter().zip(inner).for_each(|(&it, &label)| labels[it] = label);
            self.elimination.complete(&mut labels);
            labels
        };
        Found {
            labels: best.labels.as_ref().map(complete),
            lower_bound: best.lower_bound + self.elimination.constant(),
            largest_table: best.largest_table.max(self.elimination.largest_table),
        }
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
    /// The local search; `None` before the first one.
    local_search: Option<LocalSearch>,
    /// The passes over all labels; `None` before them.
    passes: Option<Passes>,
    /// The next round; `None` before it.
    next: Option<Next>,
}

/// Passes of message passing, and mini-buckets between them.
struct Passes {
    reparametrization: Reparametrization,
    n_passes: u64,
    progress: Progress,
    aim: Aim,
}

/// A round over the labels that assignments below the limit may have.
struct Next {
    /// The labels of each variable.
    within: Vec<Vec<usize>>,
    round: Box<Round>,
}

impl Core {
    fn new(problem: PairwiseProblem, limit: i64) -> Self {
        let pass_work = reparametrization::pass_work(&problem);
        let best = Found { labels: None, lower_bound: i64::MIN, largest_table: 0 };
        Self { problem, limit, best, pass_work, local_search: None, passes: None, next: None }
    }

    /// Searches until the core is settled or the work is used up.
    fn run(&mut self, budget: &mut Budget) {
        let has_begun = self.passes.is_some() || self.next.is_some();
        if has_begun && self.is_settled(budget) {
            return;
        }
        if !has_begun && self.try_elimination(N_PASSES * self.pass_work, budget) {
            return;
        }
        if self.next.is_none() {
            self.improve(budget);
        }
        self.run_next(budget);
        if !self.is_settled(budget) {
            self.decompose(budget);
        }
    }

    /// Returns the first reparametrization. If the problem repeats, quotients give first
    /// assignments and the first messages.
    fn reparametrized(&mut self, budget: &mut Budget) -> Reparametrization {
        let may_use_quotients = std::mem::take(&mut budget.may_use_quotients);
        let mut colors = ColorRefinement::new(&self.problem).filter(|_| may_use_quotients);
        let mut messages = None;
        for n_rounds in 1..=QUOTIENT_ROUNDS {
            let Some(colors) = &mut colors else { break };
            colors.refine();
            let Some(quotient) = Quotient::new(&self.problem, colors) else { break };
            self.try_quotient(&quotient, budget);
            // The tables of a quotient are large, so only one is kept at a time.
            if n_rounds == MESSAGE_ROUNDS {
                messages = Some(self.messages_of(&quotient));
            }
        }
        let Some(messages) = messages else {
            return Reparametrization::new(self.problem.clone());
        };
        budget.spend(QUOTIENT_PASSES * self.pass_work);
        Reparametrization::from_messages(self.problem.clone(), messages)
    }

    /// Returns the messages that passes over a quotient give.
    fn messages_of(&self, quotient: &Quotient) -> Vec<[Vec<i64>; 2]> {
        let n_passes = self.pass_work / reparametrization::pass_work(&quotient.problem);
        let mut passes = Reparametrization::new(quotient.problem.clone());
        for _ in 0..QUOTIENT_PASSES * n_passes {
            passes.raise_bound();
        }
        quotient.lift_messages(&self.problem, &passes)
    }

    /// Searches a quotient for an assignment that is better than those of coarser quotients.
    fn try_quotient(&mut self, quotient: &Quotient, budget: &mut Budget) {
        let mut inner = budget.of_quotient(QUOTIENT_PART);
        let mut round = Round::new(&quotient.problem, self.limit, &mut inner);
        round.run(&mut inner);
        budget.spend(inner.work_done);
        if let Some(labels) = round.found().labels {
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

    /// Alternates passes and mini-buckets until the core is settled, the next round can begin or
    /// the work is used up.
    fn improve(&mut self, budget: &mut Budget) {
        let mut passes = match self.passes.take() {
            Some(passes) => passes,
            None => Passes::new(self.reparametrized(budget)),
        };
        self.next = self.improved_by(&mut passes, budget);
        if self.next.is_none() {
            self.passes = Some(passes);
        }
    }

    /// Alternates passes and mini-buckets. Returns the next round, if it can begin.
    fn improved_by(&mut self, passes: &mut Passes, budget: &mut Budget) -> Option<Next> {
        let Passes { reparametrization, n_passes, progress, aim } = passes;
        let n_before = n_labels(&self.problem.unary);
        loop {
            *n_passes += 1;
            let within = self.pass(reparametrization, self.limit, budget);
            if self.is_settled(budget) || budget.work == 0 {
                return None;
            }
            let fraction_gone = if *n_passes < N_PASSES { 4 } else { 16 };
            if n_labels(&within) < n_before - n_before / fraction_gone {
                let round = Round::new(&reparametrization.restricted(&within), self.limit, budget);
                return Some(Next { within, round: Box::new(round) });
            }
            if progress.is_slow(self.limit - reparametrization.lower_bound) {
                self.aim_below(reparametrization, aim, budget);
                if self.is_settled(budget) || budget.work == 0 {
                    return None;
                }
            }
        }
    }

    /// Runs the next round, if it can begin.
    fn run_next(&mut self, budget: &mut Budget) {
        let Some(Next { within, round }) = &mut self.next else { return };
        round.run(budget);
        let found = round.found();
        let labels = found.labels.map(|it| labels_at(within, &it));
        self.best.lower_bound = self.best.lower_bound.max(found.lower_bound);
        self.best.largest_table = self.best.largest_table.max(found.largest_table);
        if let Some(labels) = labels {
            self.offer(labels);
        }
    }

    /// Lowers the limit. Assignments that do not cost less are no longer of interest.
    fn lower_limit(&mut self, limit: i64) {
        if limit >= self.limit {
            return;
        }
        self.limit = limit;
        self.best.labels = None;
        if let Some(next) = &mut self.next {
            next.round.lower_limit(limit);
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

    /// Improves an assignment by local search, and keeps it if it costs less than the limit.
    fn offer_improved(&mut self, mut labels: Vec<usize>, budget: &mut Budget) {
        let work = budget.local_search_work / LOCAL_SEARCH_PART;
        let search = self.local_search.get_or_insert_with(|| LocalSearch::new(&self.problem));
        let done = search.improve(&self.problem, &mut labels, work);
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

impl Passes {
    fn new(reparametrization: Reparametrization) -> Self {
        Self { reparametrization, n_passes: 0, progress: Progress::new(), aim: Aim::new() }
    }
}

fn n_labels<T>(of_variables: &[Vec<T>]) -> usize {
    of_variables.iter().map(Vec::len).sum()
}
