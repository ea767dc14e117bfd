//! Searches with prices on memory: the least total of what plans cost, in bytes moved or ticks of time, and of the priced bytes that they hold.

use soybean_minsum::{Options, solve};
use soybean_plan::{Mesh, Topology};

use super::{
    charge::Charges,
    choices::Choices,
    optimum::{Effort, Found, Searcher},
    problem::{Choice, Meaning, Plan, Problem, WORK},
    tiled::Tiled,
};
use crate::network::Network;

/// A network on a mesh, for searches with one price after another.
pub(crate) struct Priced<'a> {
    problem: Problem<'a>,
}

/// A plan, and what all plans cost at least at the same prices.
pub(crate) struct AtPrices {
    pub(crate) tiled: Tiled,
    /// No plan's total of its cost and of the priced bytes held is less than this.
    pub(crate) bound: f64,
}

impl<'a> Priced<'a> {
    /// With bytes moved as costs, or with times on this machine.
    pub(crate) fn new(network: &'a Network, mesh: Mesh, timed: Option<&Topology>) -> Self {
        let problem = Problem::new(network, mesh);
        Self { problem: timed.into_iter().fold(problem, Problem::timed) }
    }

    /// What a plan costs without prices, in whole bytes moved or ticks.
    pub(crate) fn cost(&mut self, tiled: &Tiled) -> f64 {
        self.problem.charges = Charges::default();
        self.problem.whole(self.problem.cost(&self.plan(tiled))) as f64
    }

    /// Ticks in seconds; none where costs are bytes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "ticks of plans are whole numbers below 2^63"
    )]
    pub(crate) fn seconds(&self, ticks: f64) -> Option<f64> {
        self.problem.pricing.seconds(ticks.max(0.0) as u64)
    }

    /// The plan of the least total at these prices, as far as the search's budget goes, from plans in hand.
    pub(crate) fn best(&mut self, charges: Charges, in_hand: &[&Tiled]) -> AtPrices {
        self.problem.charges = charges;
        let in_hand = in_hand.iter().map(|it| Found::new(&self.problem, self.plan(it)));
        let in_hand: Vec<Found> = in_hand.collect();
        let in_hand: Vec<&Found> = in_hand.iter().collect();
        let searcher = Searcher::new(&self.problem);
        let found = searcher.best(&searcher.counts().all_states(), &in_hand, Effort::Proof);
        AtPrices { tiled: self.problem.tiled(&found.plan), bound: self.units(found.bound) }
    }

    /// The plan of the least total among those that give every tensor and every operator what one of these plans gives it.
    pub(crate) fn best_mixed(&mut self, charges: Charges, plans: &[&Tiled]) -> Tiled {
        self.problem.charges = charges;
        let plans: Vec<Plan> = plans.iter().map(|it| self.plan(it)).collect();
        let plans: Vec<&[Choice]> = plans.iter().map(Vec::as_slice).collect();
        let all = |_, chosen: &[&Choice]| chosen.iter().copied().cloned().collect();
        let choices = Choices::new(&self.problem, &plans, all).expect("there are plans");
        let positions = solve(&choices.costs(), None, Options::with_work(WORK)).labels;
        self.problem.tiled(&choices.plan(&positions))
    }

    fn plan(&self, tiled: &Tiled) -> Plan {
        let choice = |meaning: &Meaning| match *meaning {
            Meaning::Tensor { value, .. } => Choice::Tensor(tiled.tilings[value.index()]),
            Meaning::Operator { value, .. } => Choice::Operator(tiled.signature(value).1.clone()),
        };
        self.problem.meanings.iter().map(choice).collect()
    }

    fn units(&self, cost: i64) -> f64 {
        cost as f64 / self.problem.unit() as f64
    }
}
