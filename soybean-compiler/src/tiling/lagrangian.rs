//! Searches of the Lagrangian: the cost of a plan, in bytes moved or ticks of time, plus the price
//! of the bytes that it holds. Lagrangian relaxation: Everett 1963, Geoffrion 1974.

use soybean_minsum::{Options, solve};
use soybean_plan::{Mesh, Topology};

use super::{
    candidates::Candidates,
    coarse_to_fine::{BoundedPlan, CoarseToFine, Depth},
    effort::SearchEffort,
    multipliers::MemoryMultipliers,
    problem::{Label, Plan, TilingProblem, Variable, WORK},
    tiled::TiledNetwork,
};
use crate::network::Network;

/// A network on a mesh, for searches with changing multipliers.
pub(crate) struct Lagrangian<'a> {
    problem: TilingProblem<'a>,
    /// The effort of each search.
    effort: SearchEffort,
}

/// A plan, and a lower bound at the same multipliers.
pub(crate) struct LagrangianSolution {
    pub(crate) tiled: TiledNetwork,
    /// A lower bound on the Lagrangian of all plans.
    pub(crate) lower_bound: f64,
}

impl<'a> Lagrangian<'a> {
    /// Returns the problem with bytes moved as costs, or with times on this machine.
    pub(crate) fn new(
        network: &'a Network,
        mesh: Mesh,
        timed: Option<&Topology>,
        effort: SearchEffort,
    ) -> Self {
        let problem = TilingProblem::new(network, mesh);
        Self { problem: timed.into_iter().fold(problem, TilingProblem::timed), effort }
    }

    /// Returns the cost of a plan without multipliers, in whole bytes moved or ticks.
    pub(crate) fn cost(&mut self, tiled: &TiledNetwork) -> f64 {
        self.problem.multipliers = MemoryMultipliers::default();
        self.problem.whole(self.problem.cost(&self.plan(tiled))) as f64
    }

    /// Converts ticks to seconds; `None` if costs are bytes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "ticks of plans are whole numbers below 2^63"
    )]
    pub(crate) fn seconds(&self, ticks: f64) -> Option<f64> {
        self.problem.cost_model.seconds(ticks.max(0.0) as u64)
    }

    /// Searches the plan with the least Lagrangian, starting from plans in hand.
    pub(crate) fn best(
        &mut self,
        multipliers: MemoryMultipliers,
        in_hand: &[&TiledNetwork],
        depth: Depth,
    ) -> LagrangianSolution {
        self.problem.multipliers = multipliers;
        let in_hand = in_hand.iter().map(|it| BoundedPlan::new(&self.problem, self.plan(it)));
        let in_hand: Vec<BoundedPlan> = in_hand.collect();
        let in_hand: Vec<&BoundedPlan> = in_hand.iter().collect();
        let searcher = CoarseToFine::new(&self.problem, self.effort);
        let found = searcher.best(&searcher.orbits().all_labels(), &in_hand, depth);
        LagrangianSolution {
            tiled: self.problem.tiled(&found.plan),
            lower_bound: self.units(found.lower_bound),
        }
    }

    /// Returns the plan with the least Lagrangian among those that take every label from one of
    /// these plans.
    pub(crate) fn best_mixed(
        &mut self,
        multipliers: MemoryMultipliers,
        plans: &[&TiledNetwork],
    ) -> TiledNetwork {
        self.problem.multipliers = multipliers;
        let plans: Vec<Plan> = plans.iter().map(|it| self.plan(it)).collect();
        let plans: Vec<&[Label]> = plans.iter().map(Vec::as_slice).collect();
        let all = |_, chosen: &[&Label]| chosen.iter().copied().cloned().collect();
        let candidates = Candidates::new(&self.problem, &plans, all).expect("there are plans");
        let positions = solve(&candidates.costs(), None, Options::with_work(WORK)).labels;
        self.problem.tiled(&candidates.plan(&positions))
    }

    fn plan(&self, tiled: &TiledNetwork) -> Plan {
        let label = |variable: &Variable| match *variable {
            Variable::Tensor { value, .. } => Label::Tensor(tiled.tilings[value.index()]),
            Variable::Operator { value, .. } => Label::Operator(tiled.partitioning(value).clone()),
        };
        self.problem.variables.iter().map(label).collect()
    }

    fn units(&self, cost: i64) -> f64 {
        cost as f64 / self.problem.unit() as f64
    }
}
