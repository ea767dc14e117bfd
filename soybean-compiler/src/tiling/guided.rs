//! Searches whose costs are guides to fast plans. As time passes, collectives run beside kernels,
//! which is no sum over pairs of labels. These costs count only a share of the time of collectives:
//! the part that nothing hides.

use std::{collections::BTreeMap, iter};

use soybean_minsum::labels_within;
use soybean_plan::Topology;

use super::{
    coarse_to_fine::{CoarseToFine, Depth},
    effort::SearchEffort,
    problem::{TilingProblem, Variable},
    tiled::TiledNetwork,
};
use crate::{graph::Source, network::Network};

/// Tilings of plans near another one may make its guided time longer by 1/8.
const NEAR_PART: i64 = 8;
/// The number of passes that rule out the others.
const N_PASSES: u64 = 2;
/// The least and largest number of plans near another one. Between them, the plans have this many
/// variables in all.
const MIN_NEAR: usize = 4;
const MAX_NEAR: usize = 32;
const MAX_VARIABLES: usize = 1 << 13;

/// The shares of the time of collectives that kernels do not hide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ExposedShares {
    /// Of collectives of tensors that are kept from step to step, or that only updates read. They
    /// can run beside the forward and backward pass.
    pub(crate) kept: f64,
    /// Of other collectives, for which the next operator waits.
    pub(crate) others: f64,
}

impl ExposedShares {
    /// All time counts.
    pub(crate) const ALL: Self = Self { kept: 1.0, others: 1.0 };

    /// Returns the share of a tensor's collectives.
    pub(super) fn of(self, is_kept: bool) -> f64 {
        if is_kept { self.kept } else { self.others }
    }
}

/// Returns a plan with little time if these shares of collectives count.
pub(crate) fn guided(
    network: &Network,
    topology: &Topology,
    shares: ExposedShares,
) -> TiledNetwork {
    let problem = TilingProblem::new(network, topology.mesh()).timed_with(topology, shares);
    let searcher = CoarseToFine::new(&problem, SearchEffort::Rough);
    let found = searcher.best(&searcher.orbits().all_labels(), &[], Depth::Assignment);
    problem.tiled(&problem.completed(found.plan))
}

/// Returns the plan of [`guided`] and plans near it, those with the least guided time first. In
/// each of them, the parameters of one group have another tiling, and all else is searched again.
/// The parameters of a group have equal shapes, and equal tilings in the guided plan.
pub(crate) fn guided_and_near(
    network: &Network,
    topology: &Topology,
    shares: ExposedShares,
) -> Vec<TiledNetwork> {
    let problem = TilingProblem::new(network, topology.mesh()).timed_with(topology, shares);
    let searcher = CoarseToFine::new(&problem, SearchEffort::Rough);
    let orbits = searcher.orbits();
    let all = orbits.all_labels();
    let guided = searcher.best(&all, &[], Depth::Assignment);
    let here = orbits.indices(&guided.plan).expect("orbits have all labels");
    let limit = guided.cost + guided.cost / NEAR_PART;
    let kept = labels_within(&orbits.restricted(&all), limit, N_PASSES);
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (at, variable) in problem.variables.iter().enumerate() {
        let &Variable::Tensor { value, tensor_kind } = variable else { continue };
        let node = network.graph.node(value);
        if matches!(node.source, Source::Parameter(_)) {
            let labels = (tensor_kind, &all[at], here[at]);
            groups.entry((&node.shape, labels)).or_default().push(at);
        }
    }
    let mut near = Vec::new();
    for (&(_, (_, labels, here)), group) in &groups {
        let others = kept[group[0]].iter().map(|it| labels[*it]).filter(|it| *it != here);
        near.extend(others.map(|other| {
            let mut allowed = all.clone();
            group.iter().for_each(|at| allowed[*at] = vec![other]);
            searcher.best(&allowed, &[], Depth::Assignment)
        }));
    }
    near.sort_by_key(|it| it.cost);
    let n_near = (MAX_VARIABLES / problem.variables.len()).clamp(MIN_NEAR, MAX_NEAR);
    let plans = iter::once(guided).chain(near).map(|it| problem.completed(it.plan));
    let plans = plans.map(|it| problem.tiled(&it));
    plans.take(1 + n_near).collect()
}

/// Returns a time, in seconds, that the kernels of any plan take at least: each operator has the
/// partitioning in which it is fastest.
pub(crate) fn least_kernel_seconds(network: &Network, topology: &Topology) -> f64 {
    let problem = TilingProblem::new(network, topology.mesh()).timed(topology);
    let searcher = CoarseToFine::new(&problem, SearchEffort::Rough);
    let orbits = searcher.orbits();
    let least = |at: usize| {
        let Variable::Operator { value, .. } = problem.variables[at] else { return 0 };
        let kernel = |label: usize| {
            let label = orbits.label(at, label);
            problem.cost_model.kernel(network, value, label.partitioning())
        };
        (0..orbits.n_labels(at)).map(kernel).min().unwrap_or(0)
    };
    let units: i64 = (0..problem.variables.len()).map(least).sum();
    let units = u64::try_from(units).expect("times are not negative");
    problem.cost_model.seconds(units).unwrap_or(0.0)
}
