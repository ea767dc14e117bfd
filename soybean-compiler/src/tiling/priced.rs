//! Searches with prices on memory: the least total of what plans cost, in bytes moved or ticks of time, and of the priced bytes that they hold.

use std::rc::Rc;

use soybean_plan::{Mesh, Topology};

use super::{
    charge::Charges,
    optimum::{Effort, Searcher},
    pairwise::Pairwise,
    problem::{Choice, Meaning, Pair, Plan, Problem},
    solve::{WORK, solve},
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
        let in_hand: Vec<Plan> = in_hand.iter().map(|it| self.plan(it)).collect();
        let found = {
            let searcher = Searcher::new(&self.problem);
            let in_hand: Vec<&Plan> = in_hand.iter().collect();
            searcher.best(&searcher.counts().all_states(), &in_hand, Effort::Proof)
        };
        AtPrices { tiled: self.problem.tiled(&found.plan), bound: self.units(found.bound) }
    }

    /// The plan of the least total among those that give every tensor and every operator what one of these plans gives it.
    pub(crate) fn best_mixed(&mut self, charges: Charges, plans: &[&Tiled]) -> Tiled {
        self.problem.charges = charges;
        let plans: Vec<Plan> = plans.iter().map(|it| self.plan(it)).collect();
        let choices = |variable: usize| {
            let mut choices: Vec<&Choice> = Vec::new();
            plans.iter().for_each(|it| {
                super::number(&mut choices, &it[variable]);
            });
            choices
        };
        let choices: Vec<Vec<&Choice>> = (0..self.problem.meanings.len()).map(choices).collect();
        let states = solve(&self.restricted(&choices), None, WORK).states;
        let plan: Plan =
            choices.iter().zip(states).map(|(choices, it)| choices[it].clone()).collect();
        self.problem.tiled(&plan)
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

    /// The costs over these choices for each variable.
    fn restricted(&self, choices: &[Vec<&Choice>]) -> Pairwise {
        let of_variable = |(variable, choices): (usize, &Vec<&Choice>)| {
            choices
                .iter()
                .map(|it| self.problem.cost_of_choice(&self.problem.pricing, variable, it))
                .collect()
        };
        let edge = |pair: &Pair| {
            let (tilings, forms) = (&choices[pair.tensor], &choices[pair.operator]);
            let mut table = vec![0; tilings.len() * forms.len()];
            for (row, tiling) in tilings.iter().enumerate() {
                for (column, form) in forms.iter().enumerate() {
                    let at = pair.position(row, column, tilings.len(), forms.len());
                    table[at] = self.problem.cost_of_pair(
                        &self.problem.pricing,
                        pair,
                        tiling.tiling(),
                        form.form(),
                    );
                }
            }
            pair.edge(Rc::from(table))
        };
        Pairwise {
            unary: choices.iter().enumerate().map(of_variable).collect(),
            edges: self.problem.pairs.iter().map(edge).collect(),
        }
    }
}
