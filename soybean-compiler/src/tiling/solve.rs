//! The least sum of tables, proved where that is possible within a stated amount of work.
//!
//! Variables with few neighbours are eliminated. What is left gets a lower bound, in two ways by turns: passes that move costs between tables, and elimination
//! in buckets, which grow as long as that does not prove enough. Either rules out states that cannot be part of anything better than the best
//! states in hand, and finds better ones. With states gone, more variables can be eliminated, and so on, until all are, or none is left to be
//! better, or the work is used up.

use super::{
    bound::{Bound, Direction, Pass},
    buckets::bucketed,
    eliminate::{Elimination, minimise},
    order::{Limits, Order},
    pairwise::Pairwise,
};

/// What was found.
#[derive(Debug)]
pub(super) struct Solution {
    /// A state for each variable.
    pub(super) states: Vec<usize>,
    /// No states cost less than this.
    pub(super) bound: i64,
    /// The entries of the largest table.
    pub(super) largest_table: usize,
}

/// Entries of tables looked at in a search that is to prove its optimum for up to 8 ranks: about a second in an unoptimised build.
pub(super) const WORK: u64 = 1 << 27;
/// The most for the elimination of one variable before there is a bound.
const WORK_FIRST: u64 = 1 << 13;
/// What a state costs in elimination, in entries of a pass.
const ENTRIES_OF_STATE: u64 = 8;
/// What a table costs in a pass besides its entries.
const ENTRIES_OF_TABLE: u64 = 256;
/// Passes after which progress is judged.
const N_PASSES: u64 = 4;
/// Entries of the first buckets.
const BUCKET: u64 = 1 << 14;
/// How much larger buckets become each time.
const GROWTH: u64 = 8;

/// The states of least cost, as far as this much work goes. Some states in hand, if they are good, make it fast.
pub(super) fn solve(problem: &Pairwise, in_hand: Option<&[usize]>, work: u64) -> Solution {
    let limit = in_hand.map_or(i64::MAX / 2, |states| problem.cost(states));
    let mut work_left = work;
    let refined = refine(problem, limit, &mut work_left);
    let states = match refined.better {
        Some(states) => states,
        None => in_hand.map_or_else(|| vec![0; problem.unary.len()], <[usize]>::to_vec),
    };
    let bound = refined.bound.min(problem.cost(&states));
    Solution { bound, largest_table: refined.largest_table, states }
}

/// For each variable the states with which the whole need not cost more than this, as far as some passes of a bound tell.
pub(super) fn within(problem: &Pairwise, limit: i64, n_passes: u64) -> Vec<Vec<usize>> {
    let mut bound = Bound::new(problem.clone());
    let mut within: Vec<Vec<usize>> =
        problem.unary.iter().map(|it| (0..it.len()).collect()).collect();
    for number in 1..=n_passes {
        for (kept, found) in within.iter_mut().zip(bound.pass(direction(number), limit).within) {
            kept.retain(|it| found.binary_search(it).is_ok());
        }
    }
    within
}

fn direction(number: u64) -> Direction {
    if number.is_multiple_of(2) { Direction::Forward } else { Direction::Backward }
}

/// What is known of a sum of tables: states that cost less than the limit, if any were found, and what all states cost at least, or the limit.
struct Refined {
    better: Option<Vec<usize>>,
    bound: i64,
    largest_table: usize,
}

/// States that cost less than `limit`, and a bound up to it.
fn refine(problem: &Pairwise, limit: i64, work_left: &mut u64) -> Refined {
    let mut elimination = Elimination::new(problem);
    let limits = Limits { n_neighbors: 2, work_each: WORK_FIRST, ..Limits::NONE };
    let order = Order::new(problem, limits);
    elimination.run(&order);
    *work_left = work_left.saturating_sub(order.work * ENTRIES_OF_STATE);
    let (core, numbers) = elimination.left();
    let constant = elimination.constant();
    let complete = |inner: &[usize]| {
        let mut states = vec![0; problem.unary.len()];
        numbers.iter().zip(inner).for_each(|(&number, &state)| states[number] = state);
        elimination.complete(&mut states);
        states
    };
    let inner = Core::new(core, limit - constant).refined(work_left);
    Refined {
        better: inner.better.as_deref().map(complete),
        bound: inner.bound + constant,
        largest_table: inner.largest_table.max(elimination.largest_table),
    }
}

/// What could not be eliminated at once, and what is known of it.
struct Core {
    problem: Pairwise,
    limit: i64,
    known: Refined,
    /// The entries of a pass.
    work: u64,
}

impl Core {
    fn new(problem: Pairwise, limit: i64) -> Self {
        let work = problem.edges.iter().map(|it| it.table.len() as u64 + ENTRIES_OF_TABLE).sum();
        let known = Refined { better: None, bound: i64::MIN, largest_table: 0 };
        Self { problem, limit, known, work }
    }

    fn refined(mut self, work_left: &mut u64) -> Refined {
        if !self.is_eliminated(N_PASSES * self.work, work_left) {
            self.improve(work_left);
        }
        self.known
    }

    fn improve(&mut self, work_left: &mut u64) {
        let mut bound = Bound::new(self.problem.clone());
        let n_before = n_states(&self.problem.unary);
        let mut progress = Progress { gap: i64::MAX, n_passes: 0 };
        let mut bucket = BUCKET;
        for n_passes in 1.. {
            let within = self.pass(&mut bound, n_passes, work_left);
            if self.is_settled() || *work_left == 0 {
                return;
            }
            let share_gone = if n_passes < N_PASSES { 4 } else { 16 };
            if n_states(&within) < n_before - n_before / share_gone {
                return self.learn_within(&bound, &within, work_left);
            }
            if progress.is_slow(self.limit - bound.value) {
                self.fill_buckets(&bound, &within, bucket, work_left);
                bucket *= GROWTH;
                if self.is_settled() || *work_left == 0 {
                    return;
                }
            }
        }
    }

    /// A pass of the bound; gives the states with which the whole can cost less than the limit.
    fn pass(&mut self, bound: &mut Bound, number: u64, work_left: &mut u64) -> Vec<Vec<usize>> {
        let Pass { within, decoded } = bound.pass(direction(number), self.limit - 1);
        *work_left = work_left.saturating_sub(self.work);
        self.learn(decoded);
        let reached = if within.iter().any(Vec::is_empty) { self.limit } else { bound.value };
        self.known.bound = self.known.bound.max(reached);
        within
    }

    /// A bound by elimination in buckets, over states within which the whole can cost less than the limit; and states that are good together.
    fn fill_buckets(
        &mut self,
        bound: &Bound,
        within: &[Vec<usize>],
        bucket: u64,
        work_left: &mut u64,
    ) {
        let found = bucketed(&bound.restricted(within), bucket.min(*work_left / ENTRIES_OF_STATE));
        *work_left = work_left.saturating_sub(found.work * ENTRIES_OF_STATE);
        self.known.bound = self.known.bound.max(found.bound.min(self.limit));
        self.known.largest_table = self.known.largest_table.max(found.largest_table);
        self.learn(chosen(within, &found.states));
    }

    /// Learns from states within which the whole can cost less than the limit.
    fn learn_within(&mut self, bound: &Bound, within: &[Vec<usize>], work_left: &mut u64) {
        let inner = refine(&bound.restricted(within), self.limit, work_left);
        self.known.bound = self.known.bound.max(inner.bound);
        self.known.largest_table = self.known.largest_table.max(inner.largest_table);
        if let Some(states) = inner.better {
            self.learn(chosen(within, &states));
        }
    }

    fn learn(&mut self, states: Vec<usize>) {
        let cost = self.problem.cost(&states);
        if cost < self.limit {
            self.limit = cost;
            self.known.better = Some(states);
        }
    }

    /// Eliminates all variables, if that takes at most this much work.
    fn is_eliminated(&mut self, work: u64, work_left: &mut u64) -> bool {
        let limits = Limits { work: work / ENTRIES_OF_STATE, ..Limits::NONE };
        let order = Order::new(&self.problem, limits);
        if order.is_complete {
            *work_left = work_left.saturating_sub(order.work * ENTRIES_OF_STATE);
            let (states, largest_table) = minimise(&self.problem, &order);
            self.known.bound = self.problem.cost(&states).min(self.limit);
            self.known.largest_table = self.known.largest_table.max(largest_table);
            self.learn(states);
        }
        order.is_complete
    }

    /// Whether nothing costs less than what was found, or than the limit.
    fn is_settled(&mut self) -> bool {
        self.known.bound = self.known.bound.min(self.limit);
        self.known.bound == self.limit
    }
}

/// The states at these positions among the kept ones.
pub(super) fn chosen(kept: &[Vec<usize>], positions: &[usize]) -> Vec<usize> {
    kept.iter().zip(positions).map(|(kept, &position)| kept[position]).collect()
}

/// How fast a bound rises.
struct Progress {
    gap: i64,
    n_passes: u64,
}

impl Progress {
    /// Whether the last passes have not closed an eighth of the gap.
    fn is_slow(&mut self, gap: i64) -> bool {
        self.n_passes += 1;
        if self.n_passes < N_PASSES {
            return false;
        }
        let is_slow = gap > self.gap / 8 * 7;
        *self = Self { gap, n_passes: 0 };
        is_slow
    }
}

fn n_states<T>(of_variables: &[Vec<T>]) -> usize {
    of_variables.iter().map(Vec::len).sum()
}
