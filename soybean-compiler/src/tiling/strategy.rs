//! Strategies: which labels a search gives to the variables of a [`TilingProblem`].

use std::{borrow::Cow, panic::resume_unwind, str::FromStr, thread};

use soybean_minsum::PairwiseProblem;
use soybean_plan::{Cluster, Mesh, Topology, TopologyError};

use super::{
    baselines, by_name,
    coarse_to_fine::{BoundedPlan, CoarseToFine, Depth},
    digit_order::{with_axis_order, with_digit_order},
    effort::SearchEffort,
    extents::Padding,
    instance::Instance,
    objective::Objective,
    problem::TilingProblem,
    recursive::recursive,
    resolution::Resolution,
    tiled::TiledNetwork,
};
use crate::{assumed_cluster::assumed_cluster, network::Network};

/// A search strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Strategy {
    /// The best plan over all tilings, proved or with a proved bound.
    #[default]
    Auto,
    /// The `SoyBean` paper's search: the best single cut, then the best cut of the halves, and so
    /// on (Algorithm 1).
    Recursive,
    /// Data parallelism: the batch is split, parameters are replicated.
    Data,
    /// Model parallelism: parameters are split along their last dim, the batch is not split.
    Model,
}

impl Strategy {
    /// All strategies with their names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("auto", Self::Auto),
        ("recursive", Self::Recursive),
        ("data", Self::Data),
        ("model", Self::Model),
    ];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Recursive => "recursive",
            Self::Data => "data",
            Self::Model => "model",
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        by_name("strategy", "strategies", &Self::NAMES, name)
    }
}

/// The request of a search.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    /// The strategy.
    pub strategy: Strategy,
    /// The memory of each rank in bytes, if it limits the plan.
    pub memory: Option<u64>,
    /// The machine, if it is named. Its levels become axes of the mesh.
    pub cluster: Option<Cluster>,
    /// The objective that is minimized.
    pub objective: Objective,
    /// The work that the search may do.
    pub effort: SearchEffort,
    /// The dims that may be padded.
    pub padding: Padding,
    /// The most work for which the objective `bytes` alone counts, in operations of all ranks over
    /// those of one device. It limits only how dims are padded.
    pub max_work: f64,
    /// A number that kernels write into padding, for tests: NaN or an infinity, which nothing may
    /// read.
    pub poison: Option<f64>,
    /// Adds replicas to the network before it is searched; see [`replicate`](crate::replicate).
    /// Otherwise every operator converts its operands for itself, as in the paper.
    pub shares: bool,
    /// Keeps the images of convolutions and poolings whole along rows and columns, so that no halos
    /// are exchanged.
    pub keeps_images_whole: bool,
}

/// Returns whether [`SearchRequest::max_work`] may be this number.
#[must_use]
pub fn is_max_work(number: f64) -> bool {
    number >= 1.0 && number.is_finite()
}

/// The default of [`SearchRequest::max_work`].
pub const MAX_WORK: f64 = 1.05;

impl Default for SearchRequest {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            memory: None,
            cluster: None,
            objective: Objective::default(),
            effort: SearchEffort::default(),
            padding: Padding::default(),
            max_work: MAX_WORK,
            poison: None,
            shares: true,
            keeps_images_whole: false,
        }
    }
}

impl SearchRequest {
    /// Returns the cluster for this many ranks. If none is named, the objective `time` assumes one,
    /// with nodes of eight H100.
    #[must_use]
    pub fn cluster(&self, n_gpus: usize) -> Option<Cow<'_, Cluster>> {
        match (&self.cluster, self.objective) {
            (Some(cluster), _) => Some(Cow::Borrowed(cluster)),
            (None, Objective::Time) => Some(Cow::Owned(assumed_cluster(n_gpus))),
            (None, Objective::Bytes) => None,
        }
    }

    /// Returns the topology of this many ranks on the cluster; `None` without a cluster.
    ///
    /// # Errors
    /// If the cluster has too few devices for the ranks.
    pub fn topology(&self, n_gpus: usize) -> Result<Option<Topology>, TopologyError> {
        self.cluster(n_gpus).map(|it| Topology::new(&it, n_gpus)).transpose()
    }
}

impl From<Strategy> for SearchRequest {
    fn from(strategy: Strategy) -> Self {
        Self { strategy, ..Self::default() }
    }
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// The plan.
    pub tiled: TiledNetwork,
    /// True if no plan is better by the objective. Of plans that cost anything, only `auto` proves
    /// that.
    pub is_optimal: bool,
    /// A lower bound on the bytes of all plans; 0 if the objective is not bytes.
    pub lower_bound_bytes: u64,
    /// The number of entries of the largest table of the proof.
    pub largest_table: usize,
    /// The bytes of the plans of the other strategies.
    pub baselines: Baselines,
    /// The bytes of the plan without pins, if users pinned tensors.
    pub unpinned_bytes: Option<u64>,
    /// The topology, if the machine is known.
    pub topology: Option<Topology>,
    /// The times that were compared, if the objective is time.
    pub times: Option<PlanTimes>,
}

/// The bytes of the baseline plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baselines {
    /// The bytes of `data`.
    pub data: u64,
    /// The bytes of `model`.
    pub model: u64,
    /// The bytes of `recursive`.
    pub recursive: u64,
}

/// Times of a training step (in inference, of a prediction) in seconds. A search counts kernels
/// and collectives one after another, without copies within a rank. A compiled model has the times
/// of programs, with collectives beside kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanTimes {
    /// The time of the plan.
    pub plan: f64,
    /// A lower bound on the times of all plans.
    pub lower_bound: f64,
    /// The time of `data`.
    pub data: f64,
    /// The time of `model`.
    pub model: f64,
    /// The time of `recursive`.
    pub recursive: f64,
}

/// Searches a tiling of the network for this mesh. If users pinned tensors, it also searches one
/// without pins.
///
/// # Panics
/// If the request has a cluster and the mesh is not that of its topology.
#[must_use]
pub fn search(network: &Network, mesh: Mesh, request: &SearchRequest) -> SearchResult {
    let found = search_alone(network, mesh, request);
    if network.pins().is_empty() {
        return found;
    }
    let unpinned = search_alone(&network.clone().unpinned(), mesh, request);
    let bytes = match (request.strategy, request.objective) {
        // The plan with pins is one of those without, and may be better than the one found.
        (Strategy::Auto, Objective::Bytes) => unpinned.tiled.bytes().min(found.tiled.bytes()),
        (Strategy::Auto, Objective::Time)
        | (Strategy::Recursive | Strategy::Data | Strategy::Model, _) => unpinned.tiled.bytes(),
    };
    SearchResult { unpinned_bytes: Some(bytes), ..found }
}

/// Searches a tiling of the network for this mesh.
///
/// # Panics
/// Under the same conditions as [`search`].
#[must_use]
pub fn search_alone(network: &Network, mesh: Mesh, request: &SearchRequest) -> SearchResult {
    search_with_baselines(network, mesh, request).0
}

/// Returns the min-sum problem of all plans of a network, for other solvers, and the cost of one
/// byte, or of one unit of time, in it. Lower digits of costs break ties. Each tensor and each
/// operator is a variable; its labels are tilings and partitionings.
///
/// # Panics
/// Under the same conditions as [`search`].
#[must_use]
pub fn min_sum_problem(
    network: &Network,
    mesh: Mesh,
    request: &SearchRequest,
) -> (PairwiseProblem, i64) {
    let (problem, _) = problem(network, mesh, request);
    let instance = Instance::new(&problem, Resolution::FINE);
    (instance.restricted(&instance.all_labels()), problem.unit())
}

/// Returns the problem of a request on the mesh with the best order of axes, and the topology if
/// the machine is known.
fn problem<'a>(
    network: &'a Network,
    mesh: Mesh,
    request: &SearchRequest,
) -> (TilingProblem<'a>, Option<Topology>) {
    // The levels of a cluster order its axes.
    let is_flat = request.cluster(mesh.n_ranks()).is_none();
    let mesh = if is_flat { with_axis_order(network, mesh) } else { mesh };
    let mesh = with_digit_order(network, mesh);
    let topology =
        request.topology(mesh.n_ranks()).expect("the cluster has enough devices for the mesh");
    let topology = topology.map(|it| it.with_mesh(mesh));
    let problem = TilingProblem::new(network, mesh);
    let problem = match request.objective {
        Objective::Bytes => problem,
        Objective::Time => {
            problem.timed(topology.as_ref().expect("the objective `time` has a cluster"))
        }
    };
    (problem, topology)
}

/// Searches as [`search_alone`] does. Returns the plans of `recursive`, `data` and `model`, too.
pub(crate) fn search_with_baselines(
    network: &Network,
    mesh: Mesh,
    request: &SearchRequest,
) -> (SearchResult, [TiledNetwork; 3]) {
    let (problem, topology) = problem(network, mesh, request);
    let searcher = CoarseToFine::new(&problem, request.effort);
    let orbits = searcher.orbits();
    let baseline =
        |allowed: &[Vec<usize>]| searcher.best(allowed, &[], Depth::Assignment).unproved();
    let (recursive, data, model) = thread::scope(|scope| {
        let recursive =
            scope.spawn(|| BoundedPlan::new(&problem, recursive(&problem, request.effort)));
        let (data, model) =
            (baseline(&baselines::data(orbits)), baseline(&baselines::model(orbits)));
        (recursive.join().unwrap_or_else(|panic| resume_unwind(panic)), data, model)
    });
    let in_hand = [&recursive, &data, &model];
    let chosen = match request.strategy {
        Strategy::Auto => searcher.best(&orbits.all_labels(), &in_hand, Depth::NarrowGap),
        Strategy::Recursive => recursive.clone(),
        Strategy::Data => data.clone(),
        Strategy::Model => model.clone(),
    };
    let bytes = |found: &BoundedPlan| match request.objective {
        Objective::Bytes => problem.whole(found.cost),
        Objective::Time => problem.bytes(&found.plan),
    };
    let baselines =
        Baselines { data: bytes(&data), model: bytes(&model), recursive: bytes(&recursive) };
    let seconds = |cost: i64| problem.cost_model.seconds(problem.whole(cost));
    let times = || {
        Some(PlanTimes {
            plan: seconds(chosen.cost)?,
            lower_bound: seconds(chosen.lower_bound)?,
            data: seconds(data.cost)?,
            model: seconds(model.cost)?,
            recursive: seconds(recursive.cost)?,
        })
    };
    let of_strategies = [&recursive, &data, &model].map(|it| problem.tiled(&it.plan));
    let found = SearchResult {
        times: times(),
        // Of plans that are as good by the objective, another one may take less memory.
        is_optimal: problem.whole(chosen.lower_bound) == problem.whole(chosen.cost),
        lower_bound_bytes: match request.objective {
            Objective::Bytes => problem.whole(chosen.lower_bound),
            Objective::Time => 0,
        },
        largest_table: chosen.largest_table,
        tiled: problem.tiled(&chosen.plan),
        baselines,
        unpinned_bytes: None,
        topology,
    };
    (found, of_strategies)
}
