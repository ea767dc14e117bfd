//! Searches whose costs are guides to fast plans. As time passes, collectives run beside kernels,
//! which is no sum over pairs of labels. These costs count only a share of the time of collectives:
//! the part that nothing hides.

use soybean_plan::Topology;

use super::{
    coarse_to_fine::{CoarseToFine, Depth},
    effort::SearchEffort,
    problem::{TilingProblem, Variable},
    tiled::TiledNetwork,
};
use crate::network::Network;

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
    effort: SearchEffort,
    shares: ExposedShares,
) -> TiledNetwork {
    let problem = TilingProblem::new(network, topology.mesh()).timed_with(topology, shares);
    let searcher = CoarseToFine::new(&problem, effort);
    let found = searcher.best(&searcher.orbits().all_labels(), &[], Depth::Assignment);
    problem.tiled(&problem.completed(found.plan))
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
