//! Lower bounds by prices of usage: Lagrangian relaxation of the limit.
//!
//! At any prices, the least cost of labels with their usage, less the price of the limit, is a
//! lower bound. Message passing bounds the least cost; subgradient steps (Held, Wolfe and Crowder
//! 1974) move the prices along the usage of decoded labels.

use super::{UsageProblem, network::Network};
use crate::{
    problem::PairwiseProblem,
    reparametrization::{Reparametrization, pass_work},
};

/// The number of steps without a better bound after which steps get shorter.
const N_IDLE: u32 = 5;

/// The prices, their messages, and the best bound.
pub(super) struct Bound<'a> {
    problem: &'a PairwiseProblem,
    network: &'a Network,
    passes: Option<Reparametrization>,
    prices: Vec<f64>,
    /// The part of the distance to the least known cost that a step goes.
    step: f64,
    n_idle: u32,
    last_bound: i64,
    /// The prices of the best bound, and labels decoded there.
    pub(super) best_prices: Vec<f64>,
    pub(super) labels: Vec<usize>,
    pub(super) lower_bound: i64,
    pub(super) work: u64,
}

impl<'a> Bound<'a> {
    pub(super) fn new(problem: &'a UsageProblem, network: &'a Network) -> Self {
        Self {
            problem: &problem.problem,
            network,
            passes: None,
            prices: vec![0.0; network.n_times],
            step: 1.0,
            n_idle: 0,
            last_bound: i64::MIN,
            best_prices: vec![0.0; network.n_times],
            labels: vec![0; network.n_variables()],
            lower_bound: i64::MIN,
            work: 0,
        }
    }

    /// Bounds the cost at the present prices, and moves them. `most` is the least known cost.
    pub(super) fn step(&mut self, most: Option<i64>) {
        let (usage_costs, of_limit) = self.network.usage_costs(&self.prices);
        let mut problem = self.problem.clone();
        for (costs, start) in problem.unary.iter_mut().zip(&self.network.start) {
            for (cost, of_usage) in costs.iter_mut().zip(&usage_costs[*start..]) {
                *cost += of_usage;
            }
        }
        self.work += 2 * pass_work(&problem);
        let mut passes = match self.passes.take() {
            None => Reparametrization::new(problem),
            Some(passes) => {
                let n = problem.edges.len();
                let messages = (0..n).map(|it| passes.messages(it).clone()).collect();
                Reparametrization::from_messages(problem, messages)
            }
        };
        let decoded = passes.pass(0).decoded;
        let lower_bound = passes.lower_bound - of_limit;
        self.passes = Some(passes);
        self.n_idle += 1;
        let is_rising = lower_bound > self.last_bound.saturating_add(lower_bound.abs() / 500);
        self.last_bound = lower_bound;
        if lower_bound > self.lower_bound {
            (self.lower_bound, self.n_idle) = (lower_bound, 0);
            self.best_prices.clone_from(&self.prices);
            self.labels.clone_from(&decoded);
        }
        if is_rising {
            return;
        }
        if self.n_idle > N_IDLE {
            (self.step, self.n_idle) = (self.step * 0.7, 0);
        }
        let target = lower_bound.max(1).saturating_mul(2);
        let target = most.map_or(target, |it| it.min(target));
        self.move_prices(&decoded, (target - lower_bound).max(1) as f64);
    }

    /// Moves the prices along the excess of usage. `gap` is how far the bound is to rise.
    fn move_prices(&mut self, labels: &[usize], gap: f64) {
        let profile = self.network.profile(labels);
        let excess = |usage: i64| (usage - self.network.limit) as f64;
        let squares = self.prices.iter().zip(&profile).map(|(price, usage)| {
            let excess = excess(*usage);
            if *price > 0.0 || excess > 0.0 { excess * excess } else { 0.0 }
        });
        let squares: f64 = squares.sum();
        if squares == 0.0 {
            return;
        }
        let factor = self.step * gap / squares;
        for (price, usage) in self.prices.iter_mut().zip(&profile) {
            *price = (*price + factor * excess(*usage)).max(0.0);
        }
    }
}
