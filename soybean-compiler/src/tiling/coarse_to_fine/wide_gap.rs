//! More work where the gap between a plan and its bound is still wide.
//!
//! The search of orbits goes on where it stopped, which raises the bound and finds better orbits,
//! unless its own gap is small: the rest then lies between orbits and plans.
//! Often no assignment of axes suits all of them. Mixtures take such an assignment for some
//! variables, and the labels of the best plan for the others.

use soybean_minsum::{Options, labels_at, solve_below};
use soybean_plan::AxisSet;

use super::{BoundedPlan, CoarseToFine, OrbitSearch, Refinement, single_axes};
use crate::tiling::{
    axis_partition::legal_partitions,
    candidates::Candidates,
    effort::{WIDE_GAP, WorkBudget},
    problem::Label,
};

/// The most additional work, for orbits and again for plans: each as much as a standard search has.
const MORE_WORK: u64 = WorkBudget::STANDARD;
/// Of the additional work that is left, a mixture gets at most 1/8, its tables 1/4, and an
/// improvement 1/4.
const MIXTURE_PART: u64 = 8;
const TABLES_PART: u64 = 4;
const IMPROVEMENT_PART: u64 = 4;
/// Gaps of orbits below 1/8 of a wide one are not pursued here. Mixtures are searched down to 1/2
/// of a wide gap; improvements by blocks do better below.
const ORBIT_GAP: i64 = 8 * WIDE_GAP;
const MIXTURE_GAP: i64 = 2 * WIDE_GAP;
/// The most rounds of improvements by all partitions.
const MAX_ROUNDS: usize = 2;

impl Refinement<'_> {
    /// Goes on with more work. The plan and the bound never become worse.
    pub(super) fn narrow_gap(&mut self, orbits: &mut OrbitSearch<'_>) {
        let CoarseToFine { problem, orbits: instance, .. } = self.parent;
        self.budget.add(MORE_WORK);
        if orbits.cost - self.found.lower_bound > self.found.lower_bound / ORBIT_GAP {
            let found = orbits.go_on(self.parent.coarse_work.min(MORE_WORK), self.found.cost);
            self.found.lower_bound = self.found.lower_bound.max(found.lower_bound);
            self.found.largest_table = self.found.largest_table.max(found.largest_table);
        }
        let labels = labels_at(self.allowed, &orbits.labels);
        let wanted = instance.plan(&labels);
        let mut partitions = legal_partitions(instance, &labels);
        partitions.push(single_axes(&problem.mesh));
        self.step_by_each(&partitions, |this, blocks| {
            let BoundedPlan { cost, lower_bound, .. } = this.found;
            if cost - lower_bound > lower_bound / MIXTURE_GAP {
                this.mix(&wanted, blocks);
            }
        });
        for _ in 0..MAX_ROUNDS {
            let before = self.found.cost;
            self.step_by_each(&partitions, |this, blocks| this.improve(blocks, IMPROVEMENT_PART));
            if self.found.cost == before {
                return;
            }
        }
    }

    /// Takes a step by one partition into blocks after the other.
    fn step_by_each(
        &mut self,
        partitions: &[Vec<AxisSet>],
        mut step: impl FnMut(&mut Self, &[AxisSet]),
    ) {
        for blocks in partitions {
            if self.is_settled() || self.budget.is_used_up() {
                return;
            }
            step(self, blocks);
        }
    }

    /// Searches the best mixture of the plan and of the assignments of these orbits by blocks,
    /// unless that takes too much work.
    fn mix(&mut self, wanted: &[Label], blocks: &[AxisSet]) {
        let plan = &self.found.plan;
        let of_both = |variable: usize, like: &[&Label]| {
            let mut labels = self.parent.assignments(variable, like[0], blocks);
            labels.push(like[1].clone());
            labels
        };
        let candidates = Candidates::new(self.parent.problem, &[wanted, plan], of_both)
            .expect("a plan is one of its mixtures");
        let of_tables = self.work_of_tables(candidates.n_entries());
        if of_tables > self.budget.left() / TABLES_PART {
            return;
        }
        self.budget.spend(of_tables);
        let options = Options::with_work(self.budget.granted(self.parent.work, MIXTURE_PART));
        let found = solve_below(&candidates.costs(), self.found.cost, options);
        self.budget.spend(found.work);
        if let Some(labels) = found.labels {
            self.offer(candidates.plan(&labels));
        }
    }
}
