//! The search of orbits, and its local search: where tables are large, few passes over all orbits
//! fit into the work, and the orbits that they decode are poor. Tables of the orbits near the best
//! ones are smaller by far.

use std::collections::BTreeMap;

use soybean_minsum::{Improvement, Options, PairwiseProblem, Search, labels_at, solve};
use soybean_plan::AxisSet;

use super::{CoarseToFine, EDGE_WORK, NEGLIGIBLE};
use crate::tiling::problem::Label;

/// An improvement takes at most 1/4 of the work that is left.
const IMPROVEMENT_PART: u64 = 4;

/// A search of orbits that can go on.
pub(super) struct OrbitSearch<'a> {
    pub(super) parent: &'a CoarseToFine<'a>,
    /// The orbits that plans may have.
    pub(super) allowed: &'a [Vec<usize>],
    pub(super) costs: &'a PairwiseProblem,
    pub(super) search: Search,
    /// The positions of the best orbits among the allowed ones.
    pub(super) labels: Vec<usize>,
    /// The cost of these orbits.
    pub(super) cost: i64,
}

impl OrbitSearch<'_> {
    /// Goes on with more work, below the cost of a plan.
    pub(super) fn go_on(&mut self, work: u64, cost: i64) -> Improvement {
        self.search.lower_limit(self.cost.min(cost));
        self.search.add_work(work);
        let found = self.search.run();
        if let Some(labels) = &found.labels {
            self.labels.clone_from(labels);
            self.cost = self.costs.cost(labels);
        }
        found
    }

    /// Improves the orbits until no change of one axis per variable helps.
    pub(super) fn improve(&mut self) {
        let &mut Self { parent, allowed, .. } = self;
        let CoarseToFine { orbits, budget, work, .. } = parent;
        while !budget.is_used_up() {
            let here = labels_at(allowed, &self.labels);
            let near = parent.near(allowed, &here);
            let costs = orbits.restricted(&near);
            budget.spend(EDGE_WORK * costs.edges.len() as u64);
            let from = positions(&near, &here);
            let options = Options::with_work(budget.granted(*work, IMPROVEMENT_PART));
            let found = solve(&costs, Some(&from), options);
            budget.spend(found.work);
            self.labels = positions(allowed, &labels_at(&near, &found.labels));
            let before = std::mem::replace(&mut self.cost, found.cost);
            if found.cost > before - before / NEGLIGIBLE {
                return;
            }
        }
    }
}

impl CoarseToFine<'_> {
    /// Returns for each variable the allowed orbits that at most one axis tells from its own.
    fn near(&self, allowed: &[Vec<usize>], here: &[usize]) -> Vec<Vec<usize>> {
        let (orbits, classes) = (&self.orbits, self.orbits.resolution.classes());
        let mut known: BTreeMap<(bool, usize, usize), Vec<usize>> = BTreeMap::new();
        let of_variable = |(variable, (allowed, &here)): (usize, (&Vec<usize>, &usize))| {
            let label = orbits.label(variable, here);
            let is_tensor = matches!(label, Label::Tensor(_));
            let key = (is_tensor, self.problem.variables[variable].kind(), here);
            let near = known.entry(key).or_insert_with(|| {
                let is_near =
                    |it: &usize| n_changed(&classes, &label, &orbits.label(variable, *it)) <= 1;
                (0..orbits.n_labels(variable)).filter(is_near).collect()
            });
            near.iter().copied().filter(|it| allowed.binary_search(it).is_ok()).collect()
        };
        allowed.iter().zip(here).enumerate().map(of_variable).collect()
    }
}

/// Returns the least number of axes that change their splits from one orbit to another.
fn n_changed(classes: &[AxisSet], one: &Label, other: &Label) -> usize {
    let (one, other) = (one.splits(), other.splits());
    let of_class = |class: &AxisSet| {
        let mut left: Vec<Option<u8>> = class.iter().map(|axis| other[axis]).collect();
        let is_changed = |&axis: &usize| {
            let kept = left.iter().position(|it| *it == one[axis]);
            kept.map(|at| left.swap_remove(at)).is_none()
        };
        class.iter().filter(is_changed).count()
    };
    classes.iter().map(of_class).sum()
}

/// Returns the positions of labels among the kept ones.
fn positions(kept: &[Vec<usize>], labels: &[usize]) -> Vec<usize> {
    let position = |(kept, label): (&Vec<usize>, &usize)| kept.binary_search(label);
    let all = kept.iter().zip(labels).map(position);
    all.collect::<Result<_, _>>().expect("the labels are kept")
}
