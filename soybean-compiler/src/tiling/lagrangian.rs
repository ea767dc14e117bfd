//! Searches with prices on memory: the least total of what plans cost, in bytes moved or ticks of time, and of the priced bytes that they hold.

use soybean_minsum::{Options, solve};
use soybean_plan::{Mesh, Topology};

use super::{
    candidates::Candidates,
    coarse_to_fine::{BoundedPlan, CoarseToFine, Effort},
    multipliers::MemoryMultipliers,
    problem::{Label, Plan, TilingProblem, Variable, WORK},
    tiled::Tiled,
};
use crate::network::Network;

/// A network on a mesh, for searches with one price after another.
pub(crate) struct Lagrangian<'a> {
    problem: TilingProblem<'a>,
}

/// A plan, and what all plans cost at least at the same prices.
pub(crate) struct LagrangianSolution {
    pub(crate) tiled: Tiled,
    /// No plan's total of its cost and of the priced bytes held is less than this.
    pub(crate) bound: f64,
}

impl<'a> Lagrangian<'a> {
    /// With bytes moved as costs, or with times on this machine.
    pub(crate) fn new(network: &'a Network, mesh: Mesh, timed: Option<&Topology>) -> Self {
        let problem = TilingProblem::new(network, mesh);
        Self { problem: timed.into_iter().fold(problem, TilingProblem::timed) }
    }

    /// What a plan costs without prices, in whole bytes moved or ticks.
    pub(crate) fn cost(&mut self, tiled: &Tiled) -> f64 {
        self.problem.multipliers = MemoryMultipliers::default();
        self.problem.whole(self.problem.cost(&self.plan(tiled))) as f64
    }

    /// Ticks in seconds; none where costs are bytes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "ticks of plans are whole numbers below 2^63"
    )]
    pub(crate) fn seconds(&self, ticks: f64) -> Option<f64> {
        self.problem.cost_model.seconds(ticks.max(0.0) as u64)
    }

    /// The plan of the least total at these prices, as far as the search's budget goes, from plans in hand.
    pub(crate) fn best(
        &mut self,
        multipliers: MemoryMultipliers,
        in_hand: &[&Tiled],
    ) -> LagrangianSolution {
        self.problem.multipliers = multipliers;
        let in_hand = in_hand.iter().map(|it| BoundedPlan::new(&self.problem, self.plan(it)));
        let in_hand: Vec<BoundedPlan> = in_hand.collect();
        let in_hand: Vec<&BoundedPlan> = in_hand.iter().collect();
        let searcher = CoarseToFine::new(&self.problem);
        let found = searcher.best(&searcher.orbits().all_labels(), &in_hand, Effort::Proof);
        LagrangianSolution {
            tiled: self.problem.tiled(&found.plan),
            bound: self.units(found.bound),
        }
    }

    /// The plan of the least total among those that give every tensor and every operator what one of these plans gives it.
    pub(crate) fn best_mixed(&mut self, multipliers: MemoryMultipliers, plans: &[&Tiled]) -> Tiled {
        self.problem.multipliers = multipliers;
        let plans: Vec<Plan> = plans.iter().map(|it| self.plan(it)).collect();
        let plans: Vec<&[Label]> = plans.iter().map(Vec::as_slice).collect();
        let all = |_, chosen: &[&Label]| chosen.iter().copied().cloned().collect();
        let choices = Candidates::new(&self.problem, &plans, all).expect("there are plans");
        let positions = solve(&choices.costs(), None, Options::with_work(WORK)).labels;
        self.problem.tiled(&choices.plan(&positions))
    }

    fn plan(&self, tiled: &Tiled) -> Plan {
        let label = |variable: &Variable| match *variable {
            Variable::Tensor { value, .. } => Label::Tensor(tiled.tilings[value.index()]),
            Variable::Operator { value, .. } => Label::Operator(tiled.signature(value).1.clone()),
        };
        self.problem.variables.iter().map(label).collect()
    }

    fn units(&self, cost: i64) -> f64 {
        cost as f64 / self.problem.unit() as f64
    }
}
