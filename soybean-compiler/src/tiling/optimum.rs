//! The plan of least cost.

use soybean_plan::AxisSet;

use super::{
    problem::{Choice, Plan, Problem},
    resolution::Resolution,
    solve::{WORK, solve},
    view::View,
};

/// A plan, and what is known of those that cost less.
pub(super) struct Found {
    pub(super) plan: Plan,
    pub(super) cost: i64,
    /// No plan costs less than this.
    pub(super) bound: i64,
    /// The entries of the largest table.
    pub(super) largest_table: usize,
}

impl Found {
    pub(super) fn unproved(plan: Plan) -> Self {
        Self { plan, cost: i64::MAX, bound: 0, largest_table: 0 }
    }

    pub(super) fn is_optimal(&self) -> bool {
        self.bound == self.cost
    }
}

pub(super) struct Searcher<'a> {
    problem: &'a Problem<'a>,
    counts: View<'a>,
}

impl<'a> Searcher<'a> {
    pub(super) fn new(problem: &'a Problem<'a>) -> Self {
        let mesh = &problem.mesh;
        let mut classes: Vec<AxisSet> = Vec::new();
        for axis in 0..mesh.n_axes() {
            match classes
                .iter_mut()
                .find(|it| it.iter().any(|other| mesh.size(other) == mesh.size(axis)))
            {
                Some(class) => *class = class.with(axis),
                None => classes.push(AxisSet::EMPTY.with(axis)),
            }
        }
        Self { problem, counts: View::new(problem, Resolution::counts(mesh, &classes)) }
    }

    pub(super) fn counts(&self) -> &View<'a> {
        &self.counts
    }

    pub(super) fn best_of(&self, allowed: &[Vec<usize>]) -> Plan {
        self.found(allowed, &[]).plan
    }

    pub(super) fn best(&self, in_hand: &[&Plan]) -> Found {
        self.found(&self.counts.all_states(), in_hand)
    }

    fn found(&self, allowed: &[Vec<usize>], in_hand: &[&Plan]) -> Found {
        let start = std::time::Instant::now();
        let best = in_hand.iter().min_by_key(|it| self.problem.cost(it));
        let from = best.map(|it| positions(allowed, &self.counts.states(it).unwrap()));
        let pairwise = self.counts.restricted(allowed);
        eprintln!(
            "   entries {} vars {} {:?}",
            self.counts.n_entries(allowed),
            allowed.len(),
            start.elapsed()
        );
        let found = solve(&pairwise, from.as_deref(), WORK);
        let states = chosen(allowed, &found.states);
        eprintln!(
            "   counts: cost {} bound {} {:?}",
            self.counts.cost(&states) >> 20,
            found.bound >> 20,
            start.elapsed()
        );
        let view = View::new(self.problem, Resolution::fine(&self.problem.mesh));
        let kept: Vec<Vec<usize>> = (0..allowed.len())
            .map(|variable| {
                (0..view.n_states(variable))
                    .filter(|&it| {
                        self.counts.state(variable, &view.choice(variable, it))
                            == Some(states[variable])
                    })
                    .collect()
            })
            .collect();
        eprintln!("   fine {:?}", start.elapsed());
        let aligned = solve(&view.restricted(&kept), None, WORK);
        let plan = view.plan(&chosen(&kept, &aligned.states));
        let cost = self.problem.cost(&plan);
        eprintln!(
            "   aligned {} (in hand {:?}) {:?}",
            cost >> 20,
            best.map(|it| self.problem.cost(it) >> 20),
            start.elapsed()
        );
        Found { plan, cost, bound: found.bound, largest_table: found.largest_table }
    }
}

/// Where states stand among the kept ones.
fn positions(kept: &[Vec<usize>], states: &[usize]) -> Vec<usize> {
    let position = |(kept, state): (&Vec<usize>, &usize)| {
        kept.binary_search(state).expect("plans split nothing needlessly")
    };
    kept.iter().zip(states).map(position).collect()
}

/// The states at these positions among the kept ones.
fn chosen(kept: &[Vec<usize>], positions: &[usize]) -> Vec<usize> {
    kept.iter().zip(positions).map(|(kept, &position)| kept[position]).collect()
}
