//! The least sum of tables, proved where that is possible within a stated amount of work.
//!
//! Variables with few neighbours are eliminated. What is left gets a lower bound, which rules out states that cannot be part of anything better
//! than the best plan in hand; passes of the bound also find better plans. With states gone, more variables can be eliminated, and so on, until
//! all are, or none is left to be better, or the work is used up.

use super::{
    bound::{Bound, Direction, Pass},
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
    /// Whether no states cost less than these.
    pub(super) is_optimal: bool,
    /// The entries of the largest table.
    pub(super) largest_table: usize,
}

/// Entries of tables looked at in a search that is to prove its optimum: about a second in an unoptimised build.
pub(super) const WORK: u64 = 1 << 27;
/// The most for the elimination of one variable before there is a bound.
const WORK_FIRST: u64 = 1 << 13;
/// What a state costs in elimination, in entries of a pass.
const ENTRIES_OF_STATE: u64 = 8;
/// What a table costs in a pass besides its entries.
const ENTRIES_OF_TABLE: u64 = 256;
/// Passes after which progress is judged.
const N_PASSES: u64 = 8;
/// Passes after which better states are asked for.
const N_PASSES_ALONE: u64 = 3;

/// Looks for states that cost less than these, or than those in hand if it gets none; gives none when it has nothing left to try.
pub(super) type Improve<'a> = &'a mut dyn FnMut(Option<&[usize]>) -> Option<Vec<usize>>;

/// The states of least cost, as far as this much work goes. Some states in hand, if they are good, make it fast.
pub(super) fn solve(problem: &Pairwise, in_hand: Option<&[usize]>, work: u64) -> Solution {
    solve_with(problem, in_hand, &mut |_| None, work)
}

/// The same, with better states asked for where those in hand do not rule out many others.
pub(super) fn solve_with(
    problem: &Pairwise,
    in_hand: Option<&[usize]>,
    improve: Improve<'_>,
    work: u64,
) -> Solution {
    let limit = in_hand.map_or(i64::MAX / 2, |states| problem.cost(states));
    let mut work_left = work;
    let refined = refine(problem, limit, improve, &mut work_left);
    let states = match refined.better {
        Some(states) => states,
        None => in_hand.map_or_else(|| vec![0; problem.unary.len()], <[usize]>::to_vec),
    };
    let cost = problem.cost(&states);
    let bound = refined.bound.min(cost);
    Solution { bound, is_optimal: bound == cost, largest_table: refined.largest_table, states }
}

/// What is known of a sum of tables: states that cost less than the limit, if any were found, and what all states cost at least, or the limit.
struct Refined {
    better: Option<Vec<usize>>,
    bound: i64,
    largest_table: usize,
}

/// States that cost less than `limit`, and a bound up to it.
fn refine(problem: &Pairwise, limit: i64, improve: Improve<'_>, work_left: &mut u64) -> Refined {
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
    let mut improve = |inner: Option<&[usize]>| {
        let states = improve(inner.map(complete).as_deref())?;
        Some(numbers.iter().map(|&it| states[it]).collect())
    };
    let inner = Core::new(core, limit - constant).refined(&mut improve, work_left);
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

    fn refined(mut self, improve: Improve<'_>, work_left: &mut u64) -> Refined {
        if !self.is_eliminated(N_PASSES * self.work, work_left) {
            self.improve(improve, work_left);
        }
        self.known
    }

    fn improve(&mut self, improve: Improve<'_>, work_left: &mut u64) {
        let mut bound = Bound::new(self.problem.clone());
        let n_before = n_states(&self.problem.unary);
        let mut progress = Progress { gap: i64::MAX, n_passes: 0 };
        for n_passes in 1.. {
            let within = self.pass(&mut bound, self.limit, n_passes, work_left);
            if self.is_settled() || *work_left == 0 {
                return;
            }
            let share_gone = if n_passes < N_PASSES { 4 } else { 16 };
            if n_states(&within) < n_before - n_before / share_gone {
                return self.learn_within(&bound, &within, self.limit, work_left);
            }
            if n_passes > N_PASSES_ALONE
                && n_states(&within) > n_before - n_before / 16
                && let Some(states) = improve(self.known.better.as_deref())
            {
                self.learn(states);
            }
            if progress.is_slow(self.limit - bound.value) {
                if self.is_eliminated(4 * n_passes * self.work, work_left) {
                    return;
                }
                self.aim_lower(&mut bound, n_passes + 1, work_left);
                if self.is_settled() {
                    return;
                }
            }
        }
    }

    /// A pass of the bound; gives the states with which the whole can cost less than `target`.
    fn pass(
        &mut self,
        bound: &mut Bound,
        target: i64,
        number: u64,
        work_left: &mut u64,
    ) -> Vec<Vec<usize>> {
        let direction =
            if number.is_multiple_of(2) { Direction::Forward } else { Direction::Backward };
        let Pass { within, decoded } = bound.pass(direction, target - 1);
        *work_left = work_left.saturating_sub(self.work);
        self.learn(decoded);
        let reached = if within.iter().any(Vec::is_empty) { target } else { bound.value };
        self.known.bound = self.known.bound.max(reached);
        within
    }

    /// Tries to find states that cost little more than the bound, among the few that can be part of them. If there are none, the bound rises.
    fn aim_lower(&mut self, bound: &mut Bound, n_passes: u64, work_left: &mut u64) {
        let target = bound.value + (self.limit - bound.value) / 8 + 1;
        let within = self.pass(bound, target, n_passes, work_left);
        let mut portion = *work_left / 4;
        *work_left -= portion;
        self.learn_within(bound, &within, target, &mut portion);
        *work_left += portion;
    }

    /// Learns from states within which the whole can cost less than `target`.
    fn learn_within(
        &mut self,
        bound: &Bound,
        within: &[Vec<usize>],
        target: i64,
        work_left: &mut u64,
    ) {
        if within.iter().any(Vec::is_empty) {
            return;
        }
        let inner =
            refine(&bound.restricted(within), target.min(self.limit), &mut |_| None, work_left);
        self.known.bound = self.known.bound.max(inner.bound.min(target));
        self.known.largest_table = self.known.largest_table.max(inner.largest_table);
        if let Some(states) = inner.better {
            self.learn(states.iter().zip(within).map(|(&it, within)| within[it]).collect());
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
