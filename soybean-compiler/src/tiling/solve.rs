//! The least sum of tables, proved where that is possible within a stated amount of work.
//!
//! Variables with few neighbours are eliminated. What is left gets a lower bound, in two ways by turns: passes that move costs between tables, and elimination
//! in buckets, which look just above the bound, and grow where that is not told. Either raises the bound and finds better states; passes also rule out states
//! that cannot be part of anything better. With states gone, more variables can be eliminated, and so on, until all are, or none is left to be better, or the
//! work is used up. What falls into pieces can be looked at piece by piece then ([`super::chain`]).

use super::{
    alike::Folded,
    bound::{self, Bound, Pass},
    buckets::bucketed,
    chain::Chain,
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
pub(super) const ENTRIES_OF_STATE: u64 = 8;
/// Passes after which progress is judged.
const N_PASSES: u64 = 4;
/// Entries of the first buckets.
const BUCKET: u64 = 1 << 14;
/// How much larger buckets become each time.
const GROWTH: u64 = 8;
/// Buckets first look for what lies within one part of the gap among as many.
const AIM: i64 = 128;

/// One part of the work among as many goes into the whole proof before a gap may be left.
const PATIENCE: u64 = 16;

/// More than any states cost.
pub(super) const NO_LIMIT: i64 = i64::MAX / 2;

/// How far a search goes.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    /// The entries looked at.
    pub(super) work: u64,
    /// What may be left between the states found and the bound, where the proof is not cheap.
    pub(super) gap: i64,
    /// The entries looked at in addition where the problem falls into pieces and the gap is still open.
    pub(super) work_in_pieces: u64,
}

impl Goal {
    /// The proof, as far as this much work goes.
    pub(super) fn proof(work: u64) -> Self {
        Self { work, gap: 0, work_in_pieces: 0 }
    }
}

/// The states of least cost, as far as that goes. Some states in hand, if they are good, make it fast.
pub(super) fn solve(problem: &Pairwise, in_hand: Option<&[usize]>, goal: Goal) -> Solution {
    let limit = in_hand.map_or(NO_LIMIT, |states| problem.cost(states));
    let refined = better(problem, limit, goal);
    let states = match refined.better {
        Some(states) => states,
        None => in_hand.map_or_else(|| vec![0; problem.unary.len()], <[usize]>::to_vec),
    };
    let bound = refined.bound.min(problem.cost(&states));
    Solution { bound, largest_table: refined.largest_table, states }
}

/// The states of least cost among those that cost less than the limit.
pub(super) fn better(problem: &Pairwise, limit: i64, goal: Goal) -> Refined {
    refine(problem, limit, &mut Budget::new(goal))
}

/// For each variable the states with which the whole need not cost more than this, as far as some passes of a bound tell.
pub(super) fn within(problem: &Pairwise, limit: i64, n_passes: u64) -> Vec<Vec<usize>> {
    let mut bound = Bound::new(problem.clone());
    let mut within: Vec<Vec<usize>> =
        problem.unary.iter().map(|it| (0..it.len()).collect()).collect();
    for _ in 0..n_passes {
        bound.narrow(limit, &mut within);
    }
    within
}

/// What is left of a goal.
struct Budget {
    work_left: u64,
    gap: i64,
    /// The work left below which the gap may be left; before, the proof may still be cheap.
    patience: u64,
    /// Whether layers that are alike were not looked for yet.
    may_fold: bool,
    /// That of a look at pieces, until it was had.
    work_in_pieces: u64,
}

impl Budget {
    fn new(Goal { work, gap, work_in_pieces }: Goal) -> Self {
        Self {
            work_left: work,
            gap,
            work_in_pieces,
            patience: work - work / PATIENCE,
            may_fold: true,
        }
    }

    /// What may be left between the states found and the bound, now.
    fn gap(&self) -> i64 {
        if self.work_left < self.patience { self.gap } else { 0 }
    }

    fn spend(&mut self, work: u64) {
        self.work_left = self.work_left.saturating_sub(work);
    }
}

/// What is known of a sum of tables: states that cost less than the limit, if any were found, and what all states cost at least, or the limit.
pub(super) struct Refined {
    pub(super) better: Option<Vec<usize>>,
    pub(super) bound: i64,
    pub(super) largest_table: usize,
}

/// States that cost less than `limit`, and a bound up to it.
fn refine(problem: &Pairwise, limit: i64, budget: &mut Budget) -> Refined {
    let mut elimination = Elimination::new(problem);
    let limits = Limits { n_neighbors: 2, work_each: WORK_FIRST, ..Limits::NONE };
    let order = Order::new(problem, limits);
    elimination.run(&order);
    budget.spend(order.work * ENTRIES_OF_STATE);
    let (core, numbers) = elimination.left();
    let constant = elimination.constant();
    let complete = |inner: &[usize]| {
        let mut states = vec![0; problem.unary.len()];
        numbers.iter().zip(inner).for_each(|(&number, &state)| states[number] = state);
        elimination.complete(&mut states);
        states
    };
    let inner = Core::new(core, limit - constant).refined(budget);
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
        let work = bound::work(&problem);
        let known = Refined { better: None, bound: i64::MIN, largest_table: 0 };
        Self { problem, limit, known, work }
    }

    fn refined(mut self, budget: &mut Budget) -> Refined {
        if !self.is_eliminated(N_PASSES * self.work, budget) {
            self.improve(budget);
            if !self.is_settled(budget) {
                self.part(budget);
            }
        }
        self.known
    }

    /// Learns from states that are the same in all layers that are alike.
    fn fold(&mut self, budget: &mut Budget) {
        if !std::mem::take(&mut budget.may_fold) {
            return;
        }
        if let Some(folded) = Folded::new(&self.problem) {
            let share = budget.work_left / 8;
            let goal = Goal { gap: budget.gap, ..Goal::proof(share) };
            let mut inner = Budget { may_fold: false, ..Budget::new(goal) };
            let found = refine(&folded.problem, self.limit, &mut inner);
            budget.spend(share - inner.work_left);
            if let Some(states) = found.better {
                self.learn(folded.unfolded(&states));
            }
        }
    }

    /// Looks at the pieces that the problem falls into, where nothing else told enough.
    fn part(&mut self, budget: &mut Budget) {
        let work = std::mem::take(&mut budget.work_in_pieces);
        if work == 0 {
            return;
        }
        let Some(chain) = Chain::new(&self.problem, work) else { return };
        let proved = chain.proved(self.limit);
        self.known.bound = self.known.bound.max(proved.bound);
        if let Some(states) = proved.better {
            self.learn(states);
        }
    }

    fn improve(&mut self, budget: &mut Budget) {
        self.fold(budget);
        let mut bound = Bound::new(self.problem.clone());
        let n_before = n_states(&self.problem.unary);
        let mut progress = Progress { gap: i64::MAX, n_passes: 0 };
        let mut aim = Aim { bucket: BUCKET, share: AIM, expected: i64::MIN };
        for n_passes in 1.. {
            let within = self.pass(&mut bound, self.limit, budget);
            if self.is_settled(budget) || budget.work_left == 0 {
                return;
            }
            let share_gone = if n_passes < N_PASSES { 4 } else { 16 };
            if n_states(&within) < n_before - n_before / share_gone {
                return self.learn_within(&bound, &within, budget);
            }
            if progress.is_slow(self.limit - bound.value) {
                self.look_below(&mut bound, &mut aim, budget);
                if self.is_settled(budget) || budget.work_left == 0 {
                    return;
                }
            }
        }
    }

    /// A pass of the bound; gives the states with which the whole can cost less than the limit.
    fn pass(&mut self, bound: &mut Bound, limit: i64, budget: &mut Budget) -> Vec<Vec<usize>> {
        let Pass { within, decoded } = bound.pass(limit - 1);
        budget.spend(self.work);
        self.learn(decoded);
        let reached = if within.iter().any(Vec::is_empty) { limit } else { bound.value };
        self.known.bound = self.known.bound.max(reached);
        within
    }

    /// Looks, in buckets, for states that cost less than what is aimed at: with a lower limit there are fewer states, and larger tables for them.
    fn look_below(&mut self, bound: &mut Bound, aim: &mut Aim, budget: &mut Budget) {
        let (least, most) = (self.known.bound, self.limit);
        let target = aim.target(least, most);
        let within = self.pass(bound, target, budget);
        if self.known.bound < target {
            aim.expected = self.fill_buckets(bound, &within, aim.bucket, budget);
            self.known.bound = self.known.bound.max(aim.expected.min(target));
        }
        if self.known.bound >= target {
            aim.share = (aim.share / 4).max(1);
        } else if self.limit == most {
            aim.share = (aim.share / 2).max(1);
            aim.bucket *= GROWTH;
        }
    }

    /// What some states cost at least, by elimination in buckets; which also finds states that are good together.
    fn fill_buckets(
        &mut self,
        bound: &Bound,
        within: &[Vec<usize>],
        bucket: u64,
        budget: &mut Budget,
    ) -> i64 {
        let found = bucketed(&bound.restricted(within), bucket.min(budget.work_left));
        budget.spend(found.work);
        self.known.largest_table = self.known.largest_table.max(found.largest_table);
        self.learn(chosen(within, &found.states));
        found.bound
    }

    /// Learns from states within which the whole can cost less than the limit.
    fn learn_within(&mut self, bound: &Bound, within: &[Vec<usize>], budget: &mut Budget) {
        let inner = refine(&bound.restricted(within), self.limit, budget);
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
    fn is_eliminated(&mut self, work: u64, budget: &mut Budget) -> bool {
        let limits = Limits { work: work / ENTRIES_OF_STATE, ..Limits::NONE };
        let order = Order::new(&self.problem, limits);
        if order.is_complete {
            budget.spend(order.work * ENTRIES_OF_STATE);
            let (states, largest_table) = minimise(&self.problem, &order);
            self.known.bound = self.problem.cost(&states).min(self.limit);
            self.known.largest_table = self.known.largest_table.max(largest_table);
            self.learn(states);
        }
        order.is_complete
    }

    /// Whether nothing costs less than what was found, or than the limit, or not by more than it may.
    fn is_settled(&mut self, budget: &Budget) -> bool {
        self.known.bound = self.known.bound.min(self.limit);
        self.limit - self.known.bound <= budget.gap()
    }
}

/// What buckets look for next.
struct Aim {
    /// The entries of a bucket.
    bucket: u64,
    /// One part among as many of what lies between the bound and the limit.
    share: i64,
    /// What the last buckets expect of the rest.
    expected: i64,
}

impl Aim {
    fn target(&self, least: i64, most: i64) -> i64 {
        let near = least + ((most - least) / self.share).max(1);
        near.max(self.expected).min(most)
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
