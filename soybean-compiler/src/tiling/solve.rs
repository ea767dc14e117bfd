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
/// Passes after which even small progress is taken.
const N_PASSES_AT_LEAST: u64 = 8;

/// The states of least cost, as far as this much work goes. Some states in hand, if they are good, make it fast.
pub(super) fn solve(problem: &Pairwise, in_hand: Option<&[usize]>, work: u64) -> Solution {
    let limit = in_hand.map_or(i64::MAX / 4, |states| problem.cost(states));
    let mut work_left = work;
    let refined = refine(problem, limit, &mut work_left);
    let states = match refined.better {
        Some(states) => states,
        None => in_hand.map_or_else(|| vec![0; problem.unary.len()], <[usize]>::to_vec),
    };
    let cost = problem.cost(&states);
    let bound = refined.bound.min(cost);
    Solution { bound, is_optimal: bound == cost, largest_table: refined.largest_table, states }
}

struct Refined {
    /// States that cost less than the limit, if any were found.
    better: Option<Vec<usize>>,
    /// What costs less than the better states, or than the limit if there are none, costs at least this.
    bound: i64,
    largest_table: usize,
}

/// States that cost less than `limit`.
fn refine(problem: &Pairwise, limit: i64, work_left: &mut u64) -> Refined {
    let mut elimination = Elimination::new(problem);
    let order = Order::new(problem, Limits { n_neighbors: 2, work_each: WORK_FIRST, work: u64::MAX });
    elimination.run(&order);
    *work_left = work_left.saturating_sub(order.work);
    let (core, numbers) = elimination.left();
    let constant = elimination.constant();
    let inner = refine_core(core, limit - constant, work_left);
    let complete = |inner: Vec<usize>| {
        let mut states = vec![0; problem.unary.len()];
        numbers.iter().zip(inner).for_each(|(&number, state)| states[number] = state);
        elimination.complete(&mut states);
        states
    };
    Refined {
        better: inner.better.map(complete),
        bound: inner.bound + constant,
        largest_table: inner.largest_table.max(elimination.largest_table),
    }
}

/// The same for what could not be eliminated at once.
fn refine_core(core: Pairwise, limit: i64, work_left: &mut u64) -> Refined {
    let of_pass: u64 = core.edges.iter().map(|it| it.table.len() as u64 + ENTRIES_OF_TABLE).sum();
    if let Some(found) = eliminated(&core, limit, of_pass * N_PASSES_AT_LEAST, work_left) {
        return found;
    }
    let n_before = n_states(&core.unary);
    let mut bound = Bound::new(core);
    let (mut better, mut limit) = (None, limit);
    let mut spent = of_pass;
    let mut next_attempt = 2 * of_pass * N_PASSES_AT_LEAST;
    for direction in [Direction::Backward, Direction::Forward].into_iter().cycle() {
        let Pass { within, decoded } = bound.pass(direction, limit - 1);
        spent += of_pass;
        *work_left = work_left.saturating_sub(of_pass);
        let cost = bound.problem().cost(&decoded);
        if std::env::var("TRACE").is_ok() {
            eprintln!(
                "vars {} pass states {} -> {} value {:.6} limit {:.6} decoded {:.6} work {of_pass} left {work_left}",
                within.len(),
                n_before,
                within.iter().map(Vec::len).sum::<usize>(),
                bound.value as f64 / 1e12 / 1.048576,
                limit as f64 / 1e12 / 1.048576,
                cost as f64 / 1e12 / 1.048576
            );
        }
        if cost < limit {
            limit = cost;
            better = Some(decoded);
        }
        if bound.value >= limit || within.iter().any(Vec::is_empty) {
            return Refined { better, bound: limit, largest_table: 0 };
        }
        if *work_left == 0 {
            break;
        }
        let share_gone = if spent < of_pass * N_PASSES_AT_LEAST { 4 } else { 16 };
        if n_states(&within) < n_before - n_before / share_gone {
            return refine_within(&bound, &within, limit, better, work_left);
        }
        // Elimination costs at most what was spent before it, so that it is never far from the better choice.
        if spent >= next_attempt {
            next_attempt *= 2;
            if let Some(found) = eliminated(bound.problem(), limit, spent, work_left) {
                return Refined { better: found.better.or(better), ..found };
            }
        }
    }
    Refined { better, bound: bound.value, largest_table: 0 }
}

/// The same over the states that a bound has left.
fn refine_within(
    bound: &Bound,
    within: &[Vec<usize>],
    limit: i64,
    better: Option<Vec<usize>>,
    work_left: &mut u64,
) -> Refined {
    let inner = refine(&bound.restricted(within), limit, work_left);
    let states = |inner: Vec<usize>| -> Vec<usize> {
        inner.iter().zip(within).map(|(&it, within)| within[it]).collect()
    };
    Refined {
        better: inner.better.map(states).or(better),
        bound: inner.bound.min(limit),
        largest_table: inner.largest_table,
    }
}

fn n_states<T>(of_variables: &[Vec<T>]) -> usize {
    of_variables.iter().map(Vec::len).sum()
}

/// The same by eliminating all that is left, if that takes at most this much work.
fn eliminated(core: &Pairwise, limit: i64, work: u64, work_left: &mut u64) -> Option<Refined> {
    let order = Order::new(core, Limits { work: work / ENTRIES_OF_STATE, ..Limits::NONE });
    if !order.is_complete {
        return None;
    }
    *work_left = work_left.saturating_sub(order.work * ENTRIES_OF_STATE);
    let (states, largest_table) = minimise(core, &order);
    let cost = core.cost(&states);
    let better = (cost < limit).then_some(states);
    Some(Refined { better, bound: cost.min(limit), largest_table })
}
