//! Min-sum problems whose variables use something over time, such as memory, within a limit.

mod bound;
mod network;
mod peak;
mod tree_search;

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use super::problem::PairwiseProblem;
use bound::Bound;
use network::Network;
use tree_search::TreeSearch;

/// The part of the work that the lower bound gets.
const BOUND_PART: u64 = 4;
/// The tenths of the time that it gets in one of the threads.
const BOUND_TENTHS: u32 = 4;

/// A min-sum problem with a usage at each time, and its limit.
#[derive(Clone, Debug)]
pub struct UsageProblem {
    /// The variables, their labels and the costs. Costs must not be negative.
    pub problem: PairwiseProblem,
    /// The times at which each variable is alive. An empty interval uses nothing.
    pub intervals: Vec<Range<u64>>,
    /// The usage of each label, for each variable, at each time of its interval; at least zero.
    pub usages: Vec<Vec<i64>>,
    /// The usages of the variables that are alive must not exceed it in sum at any time.
    pub limit: i64,
}

impl UsageProblem {
    /// Returns the greatest usage of all times.
    ///
    /// # Panics
    /// If `labels` has no entry for a variable, or one that is not a label of its variable.
    #[must_use]
    pub fn peak_usage(&self, labels: &[usize]) -> i64 {
        let mut changes = Vec::new();
        for ((interval, usages), &label) in self.intervals.iter().zip(&self.usages).zip(labels) {
            if !interval.is_empty() {
                changes.push((interval.start, usages[label]));
                changes.push((interval.end, -usages[label]));
            }
        }
        // Usage ends before other usage begins at the same time.
        changes.sort_unstable();
        let (mut usage, mut peak) = (0, 0);
        for (_, change) in changes {
            usage += change;
            peak = peak.max(usage);
        }
        peak
    }

    /// Returns the intervals in numbers of the times at which one begins, and how many there are.
    fn spans(&self) -> (Vec<(usize, usize)>, usize) {
        let alive = self.intervals.iter().filter(|it| !it.is_empty());
        let mut times: Vec<u64> = alive.map(|it| it.start).collect();
        times.sort_unstable();
        times.dedup();
        let number = |time| times.partition_point(|it| *it < time);
        let span = |it: &Range<u64>| match it.is_empty() {
            true => (0, 0),
            false => (number(it.start), number(it.end)),
        };
        (self.intervals.iter().map(span).collect(), times.len().max(1))
    }

    fn assert_valid(&self) {
        self.problem.assert_valid();
        let n = self.problem.unary.len();
        assert!(n > 0, "there is a variable");
        assert_eq!((self.intervals.len(), self.usages.len()), (n, n), "each variable has usages");
        let mut sum = 0_i64;
        for (usages, costs) in self.usages.iter().zip(&self.problem.unary) {
            assert_eq!(usages.len(), costs.len(), "each label has a usage");
            assert!(usages.iter().all(|it| *it >= 0), "usages are at least zero");
            let most = usages.iter().max().copied().unwrap_or(0);
            sum = sum.checked_add(most).expect("the sum of usages fits into 64 bits");
        }
    }
}

/// How long a search goes on.
#[derive(Clone, Copy, Debug)]
pub enum Effort {
    /// About this work, in table entries, in one thread. The result is the same on every machine.
    Work(u64),
    /// Until this time, in so many threads.
    Until(Instant, usize),
}

/// The best results of a search so far.
#[derive(Clone, Copy, Debug)]
pub struct UsageProgress {
    /// The least cost within the limit, if any was found.
    pub cost: Option<i64>,
    /// No assignment within the limit costs less.
    pub lower_bound: i64,
}

/// An assignment within the limit, and what is proved.
#[derive(Clone, Debug)]
pub struct UsageSolution {
    /// The label of each variable; none if no assignment within the limit was found.
    pub labels: Option<Vec<usize>>,
    /// No assignment within the limit costs less.
    pub lower_bound: i64,
}

/// The results that threads share.
struct Best<'a> {
    labels: Option<Vec<usize>>,
    progress: UsageProgress,
    report: &'a mut (dyn FnMut(UsageProgress) + Send),
}

impl Best<'_> {
    fn offer(&mut self, labels: &[usize], cost: i64) {
        if self.progress.cost.is_none_or(|it| cost < it) {
            self.labels = Some(labels.to_vec());
            self.progress.cost = Some(cost);
            (self.report)(self.progress);
        }
    }

    fn offer_bound(&mut self, lower_bound: i64) {
        if lower_bound > self.progress.lower_bound {
            self.progress.lower_bound = lower_bound;
            (self.report)(self.progress);
        }
    }
}

/// Searches for an assignment of low cost within the limit, and for a lower bound. `report` is
/// called for each better result.
///
/// # Panics
/// If the problem is malformed: an edge that does not fit its variables, a variable without labels
/// or usages, a negative usage, or no variable.
pub fn solve_within_usage(
    problem: &UsageProblem,
    effort: Effort,
    report: &mut (dyn FnMut(UsageProgress) + Send),
) -> UsageSolution {
    problem.assert_valid();
    let network = Network::new(problem);
    let progress = UsageProgress { cost: None, lower_bound: i64::MIN };
    let best = Mutex::new(Best { labels: None, progress, report });
    std::thread::scope(|scope| {
        if let Effort::Until(_, n_threads) = effort {
            for seed in 1..n_threads as u64 {
                let (network, best) = (&network, &best);
                let labels = least_usage(problem);
                let prices = vec![0.0; network.n_times];
                let search = TreeSearch::new(network, labels, prices, seed + 1);
                scope.spawn(move || search_trees(search, effort, best));
            }
        }
        let (labels, prices) = search_bound(problem, &network, effort, &best);
        search_trees(TreeSearch::new(&network, labels, prices, 1), effort, &best);
    });
    let best = best.into_inner().unwrap_or_else(PoisonError::into_inner);
    UsageSolution { labels: best.labels, lower_bound: best.progress.lower_bound }
}

/// Raises the lower bound. Returns labels and prices to begin local search with.
fn search_bound(
    problem: &UsageProblem,
    network: &Network,
    effort: Effort,
    best: &Mutex<Best<'_>>,
) -> (Vec<usize>, Vec<f64>) {
    let begin = Instant::now();
    let mut bound = Bound::new(problem, network);
    loop {
        let is_over = match effort {
            Effort::Work(work) => bound.work > work / BOUND_PART,
            Effort::Until(end, _) => {
                let part = end.saturating_duration_since(begin) / 10 * BOUND_TENTHS;
                begin.elapsed() > part
            }
        };
        if is_over {
            return (bound.labels, bound.best_prices);
        }
        let most = best.lock().unwrap_or_else(PoisonError::into_inner).progress.cost;
        bound.step(most);
        best.lock().unwrap_or_else(PoisonError::into_inner).offer_bound(bound.lower_bound);
    }
}

/// Searches in trees until the end of the effort.
fn search_trees(mut search: TreeSearch<'_>, effort: Effort, best: &Mutex<Best<'_>>) {
    loop {
        let is_over = match effort {
            Effort::Work(work) => search.work > work - work / BOUND_PART,
            Effort::Until(end, _) => Instant::now() >= end,
        };
        if is_over {
            return;
        }
        search.sweep();
        if search.was_within_limit {
            let mut best = best.lock().unwrap_or_else(PoisonError::into_inner);
            best.offer(&search.labels, search.cost);
            let is_far = best.progress.cost.is_some_and(|it| search.cost / 3 * 2 > it);
            if (search.is_leaving || is_far)
                && let Some(labels) = &best.labels
            {
                search.adopt(labels);
            }
        }
    }
}

/// Returns the label of least usage for each variable.
fn least_usage(problem: &UsageProblem) -> Vec<usize> {
    let least = |(usages, costs): (&Vec<i64>, &Vec<i64>)| {
        let keys = usages.iter().zip(costs).enumerate();
        keys.min_by_key(|(_, key)| *key).map_or(0, |it| it.0)
    };
    problem.usages.iter().zip(&problem.problem.unary).map(least).collect()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{
        super::{problem::Edge, tests::numbers},
        *,
    };

    /// Returns a chain of five variables with costs below 100, three labels and usages below 4.
    fn problem(seed: u64, limit: i64) -> UsageProblem {
        let mut number = numbers(seed);
        let mut few = |n: usize, below: u64| -> Vec<i64> {
            (0..n).map(|_| number(below).cast_signed()).collect()
        };
        let unary = (0..5).map(|_| few(3, 100)).collect();
        let edges =
            (0..4).map(|it| Edge { first: it, second: it + 1, table: Rc::from(few(9, 100)) });
        let problem = PairwiseProblem { unary, edges: edges.collect() };
        let usages = (0..5).map(|_| few(3, 4)).collect();
        let intervals = (0..5).map(|it| it..it + 2).collect();
        UsageProblem { problem, intervals, usages, limit }
    }

    fn brute_force(problem: &UsageProblem) -> Option<i64> {
        let labels = (0..243_usize).map(|code| [1, 3, 9, 27, 81].map(|it| code / it % 3));
        let within = labels.filter(|it| problem.peak_usage(it) <= problem.limit);
        within.map(|it| problem.problem.cost(&it)).min()
    }

    // Guards: limits of 0, limits that nothing meets and limits that nothing exceeds.
    #[test]
    fn small_problems_are_solved_within_any_limit() {
        let (mut n_feasible, mut n_best) = (0, 0);
        for seed in 0..60 {
            let problem = problem(seed, (seed % 6).cast_signed());
            let least = brute_force(&problem);
            let found = solve_within_usage(&problem, Effort::Work(200_000), &mut |_| ());
            assert!(least.is_none_or(|it| found.lower_bound <= it), "{seed}");
            let Some(labels) = found.labels else { continue };
            assert!(problem.peak_usage(&labels) <= problem.limit, "{seed}");
            n_feasible += 1;
            n_best += usize::from(Some(problem.problem.cost(&labels)) == least);
        }
        let expected =
            (0..60).filter(|&it| brute_force(&problem(it, (it % 6).cast_signed())).is_some());
        assert_eq!(n_feasible, expected.count());
        assert!(n_best * 10 >= n_feasible * 9, "{n_best} of {n_feasible}");
    }
}
