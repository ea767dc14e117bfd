//! The fastest plan as time passes: with collectives beside kernels.
//!
//! The search minimizes sums over operators and conversions, such as bytes or the times of all
//! steps one after another. The time of an update is no such sum, since kernels hide collectives.
//! So sums are guides here: several searches make plans, each plan is lowered and its steps timed
//! on two lanes ([`Topology::overlapped_seconds`]), and the fastest one is chosen. The plans are:
//!
//! - the one with the least sum of times, the one with the fewest bytes, and the plans of the
//!   strategies `data`, `model` and `recursive` by both objectives;
//! - plans for which only a share of the time of collectives counts ([`ExposedShares`]): some fixed
//!   shares first, and then those that the fastest plan so far really exposes. With these, plans
//!   in which some weights have another tiling are timed too, until none of them is faster.
//!
//! The least time of kernels alone is a lower bound on the step of any plan. The bound on the sum
//! of all times is none, since buckets share latencies.

use soybean_plan::{Program, Step, Topology};

use crate::{
    additions::without_idle_additions,
    network::Network,
    overlap::exposed_shares,
    program::placed_within,
    replicate::without_idle_replicas,
    tiling::{
        ExposedShares, Objective, PlanTimes, SearchRequest, SearchResult, Strategy, TiledNetwork,
        guided, guided_and_near, least_kernel_seconds, search_with_baselines,
    },
};

/// The shares of collectives with which plans are searched at first.
const FIRST_SHARES: [ExposedShares; 3] = [
    ExposedShares { kept: 0.25, others: 1.0 },
    ExposedShares { kept: 0.0, others: 1.0 },
    ExposedShares { kept: 0.0, others: 0.5 },
];
/// The most searches with the shares that the fastest plan exposes.
const MAX_ROUNDS: usize = 3;
/// The least share of collectives that counts, so that needless ones are not free.
const MIN_SHARE: f64 = 0.02;

/// A plan that was lowered.
struct TimedPlan {
    tiled: TiledNetwork,
    topology: Topology,
    /// The time of all steps of an update.
    seconds: f64,
    shares: ExposedShares,
    /// True if it fits into the memory of each rank.
    fits: bool,
}

/// Replaces a plan that was found by times with the fastest one as time passes, and the times of
/// steps one after another with times as they pass. Only the strategy `auto` has a choice.
pub(crate) fn fastest(
    network: &Network,
    replicated: Option<&Network>,
    request: &SearchRequest,
    found: SearchResult,
) -> SearchResult {
    let (Some(topology), Some(times)) = (found.topology.clone(), found.times) else { return found };
    let network = replicated.unwrap_or(network);
    let timed = |tiled: TiledNetwork, topology: &Topology| {
        TimedPlan::new(tiled, topology.clone(), request.memory)
    };
    let settled = |tiled: &TiledNetwork, topology: &Topology| {
        timed(without_idle_additions(&without_idle_replicas(tiled)), topology)
    };
    // The cluster may be assumed, which an objective of bytes would not do.
    let cluster = Some(topology.cluster().clone());
    let alone = SearchRequest { cluster, memory: None, ..request.clone() };
    let of_strategies = |request: &SearchRequest| {
        let (best, baselines) = search_with_baselines(network, topology.mesh(), request);
        let topology = best.topology.as_ref().unwrap_or(&topology);
        (settled(&best.tiled, topology), baselines.map(|it| settled(&it, topology)))
    };
    let by_sum = timed(found.tiled.clone(), &topology);
    let (_, by_time) = of_strategies(&SearchRequest { strategy: Strategy::Data, ..alone.clone() });
    let [recursive, data, model] = by_time.each_ref().map(|it| it.seconds);
    let baselines = PlanTimes { recursive, data, model, ..times };
    if request.strategy != Strategy::Auto {
        let times = PlanTimes { plan: by_sum.seconds, lower_bound: 0.0, ..baselines };
        return SearchResult { times: Some(times), ..found };
    }
    let (fewest_bytes, by_bytes) =
        of_strategies(&SearchRequest { objective: Objective::Bytes, ..alone });
    let best = [fewest_bytes].into_iter().chain(by_bytes).chain(by_time);
    let mut best = best.fold(by_sum, TimedPlan::faster);
    for shares in FIRST_SHARES {
        best = best.faster(settled(&guided(network, &topology, shares), &topology));
    }
    for _ in 0..MAX_ROUNDS {
        let plans = guided_and_near(network, &topology, best.shares);
        let plans = plans.iter().map(|it| settled(it, &topology));
        let plan = plans.reduce(TimedPlan::faster).expect("the guided plan is one of them");
        if !plan.is_faster_than(&best) {
            break;
        }
        best = plan;
    }
    let lower_bound = least_kernel_seconds(network, &topology);
    let times = PlanTimes { plan: best.seconds, lower_bound, ..baselines };
    SearchResult {
        is_optimal: lower_bound >= best.seconds,
        tiled: best.tiled,
        topology: Some(best.topology),
        times: Some(times),
        ..found
    }
}

/// Returns the time of all steps of an update, or in inference of a prediction.
pub(crate) fn update_seconds(program: &Program, topology: &Topology) -> f64 {
    let seconds = |steps: &[Step]| topology.overlapped_seconds(program, steps);
    program.measured().into_iter().map(|(n, steps)| n as f64 * seconds(steps)).sum()
}

impl TimedPlan {
    fn new(tiled: TiledNetwork, topology: Topology, memory: Option<u64>) -> Self {
        debug_assert_eq!(tiled.mesh, topology.mesh(), "the plan is for this machine");
        let program = placed_within("", &tiled, Some(&topology), memory).program;
        let seconds = update_seconds(&program, &topology);
        let exposed = exposed_shares(&program, &topology);
        let at_least = |share: f64| share.clamp(MIN_SHARE, 1.0);
        let shares =
            ExposedShares { kept: at_least(exposed.kept), others: at_least(exposed.others) };
        let fits = memory.is_none_or(|limit| program.tables.arena_bytes as u64 <= limit);
        Self { tiled, topology, seconds, shares, fits }
    }

    fn is_faster_than(&self, other: &Self) -> bool {
        self.fits && (!other.fits || self.seconds < other.seconds)
    }

    /// Returns the faster one of two plans, this one if they are equal.
    fn faster(self, other: Self) -> Self {
        if other.is_faster_than(&self) { other } else { self }
    }
}
