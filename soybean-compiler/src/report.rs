//! Reports about plans: a table for people, JSON for programs.

mod json;
mod layers;
mod parallelism;
mod pass;
mod role;
pub mod rows;
mod table;
mod transfers;
mod warnings;

use std::collections::BTreeMap;

use soybean_plan::{BufferId, Entry, Kernel, Mesh, Mode, Precision, Program, Step, Topology};

use crate::{
    fastest::update_seconds,
    graph::{Graph, Source},
    holdings::Holdings,
    idle_gpus::SlowerPlan,
    memory::Placed,
    operator::Phase,
    padding::PaddingFacts,
    peak::{Content, Peak},
    tiling::{Objective, SearchRequest, SearchResult, Strategy},
    value::Value,
};

pub use parallelism::Parallelism;
pub use pass::Pass;
pub use transfers::Transfer;

/// A plan with all that is known of it.
#[derive(Clone, Debug)]
pub struct Report {
    name: String,
    strategy: Strategy,
    found: SearchResult,
    milliseconds: f64,
    peak: Peak,
    holdings: Holdings,
    padding: PaddingFacts,
    /// The plan for more GPUs that is slower, if this one leaves GPUs idle.
    slower: Option<SlowerPlan>,
    /// The number of the steps of a training step, or in inference of a prediction.
    n_steps: usize,
    memory_limit: Option<u64>,
    /// The functions that run by themselves, with the bytes of their collectives.
    entries: Vec<Entry>,
    /// The bytes that the collectives of one update move over all ranks; in inference, of one
    /// prediction. An update is one training step, or all the steps that share it.
    pub bytes_total: u64,
    /// The bytes of each of these steps that only accumulates gradients; 0 if every step updates.
    pub accumulate_bytes: u64,
    /// The same by axis of the mesh. A transfer counts for the slowest axis along which its two
    /// ranks differ.
    pub bytes_per_axis: Vec<u64>,
    /// The bytes of a batch's parts over all ranks, which the host writes in each step, evaluation
    /// or prediction. [`Self::bytes_total`] does not contain them.
    pub fed_bytes: u64,
    /// The same for one rank; all ranks have parts of one size.
    pub fed_bytes_per_gpu: u64,
    /// The memory that each rank needs, in bytes.
    pub peak_memory_bytes_per_gpu: u64,
    /// The operations of that step over all ranks, divided by those of one device: more than 1
    /// where ranks repeat each other's work, or compute padding.
    pub work: f64,
    /// The prediction for that step on the cluster, if one is known.
    pub prediction: Option<Prediction>,
}

/// The predicted times of all steps of an update, or in inference of a prediction, on a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The cluster's name.
    pub cluster: String,
    /// The time of the program's steps in seconds, if collectives run beside kernels.
    pub seconds: f64,
    /// The time of all steps one after another, as on one CPU core.
    pub serial_seconds: f64,
    /// The part of that which is collectives, in seconds.
    pub communication_seconds: f64,
    /// The levels of links between the GPUs, slowest first.
    pub levels: Vec<LevelLoad>,
}

/// The load of all steps of an update, or in inference of a prediction, on a level of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelLoad {
    /// The level's name.
    pub name: String,
    /// The axes of the mesh that belong to it.
    pub axes: Vec<usize>,
    /// The bytes moved over it, over all ranks.
    pub bytes: u64,
    /// The time during which it is busy, in seconds. Levels work at the same time.
    pub seconds: f64,
}

impl Report {
    /// Returns the report about a plan and its program. `milliseconds` is the time of the search.
    pub(crate) fn new(
        found: SearchResult,
        placed: &Placed,
        request: &SearchRequest,
        milliseconds: f64,
        (padding, slower): (PaddingFacts, Option<SlowerPlan>),
    ) -> Self {
        let Placed { program, holdings } = placed;
        let entries = program.tables.entries.iter().enumerate();
        let fed_bytes_per_gpu =
            entries.map(|(at, it)| it.n_calls * program.tables.fed_bytes_per_rank(at)).sum();
        Self {
            name: program.tables.name.clone().into_owned(),
            strategy: request.strategy,
            milliseconds,
            work: padding.work,
            padding,
            slower,
            bytes_total: program.tables.measured_bytes(),
            accumulate_bytes: program.tables.accumulate_bytes,
            bytes_per_axis: bytes_per_axis(program, &found.tiled.mesh),
            fed_bytes: fed_bytes_per_gpu * found.tiled.mesh.n_ranks() as u64,
            fed_bytes_per_gpu,
            peak_memory_bytes_per_gpu: program.tables.arena_bytes as u64,
            prediction: found.topology.as_ref().map(|it| prediction(program, it)),
            found,
            peak: holdings.peak(),
            holdings: holdings.clone(),
            n_steps: program.measured_step().len(),
            memory_limit: request.memory,
            entries: program.tables.entries.to_vec(),
        }
    }

    /// Returns the name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.name
    }

    /// Returns the mode for which the model was compiled.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.found.tiled.network.mode()
    }

    /// Returns the number of steps that share an update; 1 if every step updates, and in inference.
    #[must_use]
    pub fn accumulate(&self) -> u64 {
        match self.mode() {
            Mode::Training => self.found.tiled.network.optimizer.accumulate,
            Mode::Inference => 1,
        }
    }

    /// Returns the name of the run by which the plan is measured: `training step`, `prediction`,
    /// `update of 8 steps`, or `round of calls` of several entries.
    #[must_use]
    pub fn unit(&self) -> String {
        self.mode().unit_of(self.accumulate(), self.entries.len())
    }

    /// Returns the number of ranks. It is less than the number of GPUs that was asked for where a
    /// step is faster without some of them.
    #[must_use]
    pub fn n_gpus(&self) -> usize {
        self.found.tiled.mesh.n_ranks()
    }

    /// Returns the objective by which plans were compared.
    #[must_use]
    pub fn objective(&self) -> Objective {
        match self.found.times {
            None => Objective::Bytes,
            Some(_) => Objective::Time,
        }
    }

    /// Returns the name of the strategy.
    #[must_use]
    pub fn strategy(&self) -> &'static str {
        self.strategy.name()
    }

    /// Returns the precision of matrix products.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.found.tiled.network.precision
    }

    /// Returns whether the plan is proved to be the best by the objective.
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        self.found.is_optimal
    }

    /// Returns the result of the search.
    #[must_use]
    pub fn search(&self) -> &SearchResult {
        &self.found
    }

    /// Returns the bytes of memory of each rank, if they limited the search.
    #[must_use]
    pub fn memory_limit(&self) -> Option<u64> {
        self.memory_limit
    }

    /// Returns the contents of a rank's memory at its peak.
    #[must_use]
    pub fn peak(&self) -> &Peak {
        &self.peak
    }

    /// Returns the bytes of each content of a rank's memory at each step of a training step, or in
    /// inference of a prediction, without gaps. They count kept buffers, live buffers, and the
    /// buffers of collectives that may be under way.
    #[must_use]
    pub fn memory_by_step(&self) -> Vec<BTreeMap<Content, u64>> {
        let phase = match self.mode() {
            Mode::Training => Phase::Train(0),
            Mode::Inference => Phase::Evaluate(0),
        };
        self.holdings.by_step(phase, self.n_steps)
    }

    /// Returns the tensor of which a buffer of the program holds a part.
    #[must_use]
    pub fn value_of_buffer(&self, buffer: BufferId) -> Option<Value> {
        *self.holdings.values().get(buffer)?
    }

    /// Returns the functions that run by themselves, with the number of their calls in the measured
    /// computation.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the time that the search took.
    #[must_use]
    pub fn milliseconds(&self) -> f64 {
        self.milliseconds
    }

    /// Returns the layer of each tensor by its index: the path of the user's functions, empty for
    /// the model's own.
    #[must_use]
    pub fn layers(&self) -> Vec<String> {
        layers::layers(&self.found.tiled.network)
    }

    /// Returns the pass in which each tensor is computed, by its index.
    #[must_use]
    pub fn passes(&self) -> Vec<Pass> {
        pass::passes(&self.found.tiled.network)
    }

    /// Returns the parallelism of each layer, in the order of the model.
    #[must_use]
    pub fn parallelism(&self) -> Vec<(String, Parallelism)> {
        parallelism::parallelism(&self.found.tiled)
    }

    /// Returns the transfers of a training step, or in inference of a prediction, largest first.
    #[must_use]
    pub fn transfers(&self) -> Vec<Transfer> {
        transfers::transfers(self)
    }

    /// Returns for each buffer of the program the layer and operator of its tensor, as in
    /// `dense.0.matmul gradient`, or the user's name for it. Names are empty for gaps.
    #[must_use]
    pub fn names_of_buffers(&self) -> Vec<String> {
        let context = transfers::Context::new(self);
        let name = |it: &Option<Value>| it.map_or_else(String::new, |it| context.name(it));
        self.holdings.values().iter().map(name).collect()
    }

    /// Returns the largest possible excess of the plan's bytes, or of its time if that was
    /// minimized, over the optimum, as a fraction of the optimum; `None` if nothing is proved.
    #[must_use]
    pub fn gap(&self) -> Option<f64> {
        let (plan, bound) = match self.found.times {
            Some(times) => (times.plan, times.lower_bound),
            None => (self.bytes_total as f64, self.found.lower_bound_bytes as f64),
        };
        match (self.found.is_optimal, bound > 0.0) {
            (true, _) => Some(0.0),
            (false, true) => Some(plan / bound - 1.0),
            (false, false) => None,
        }
    }

    /// Returns the plan in two lines.
    #[must_use]
    pub fn summary(&self) -> String {
        table::summary(self)
    }

    /// Returns a table for people.
    #[must_use]
    pub fn text(&self) -> String {
        table::text(self)
    }

    /// Returns the stable interface for programs.
    #[must_use]
    pub fn json(&self) -> String {
        json::json(self)
    }

    fn graph(&self) -> &Graph {
        &self.found.tiled.network.graph
    }

    /// Returns the names of tensors: the user's name, `name'` for a next value, or the number.
    #[must_use]
    pub fn names(&self) -> BTreeMap<Value, String> {
        let network = &self.found.tiled.network;
        let own = |value: Value| match &network.graph.node(value).name {
            name if name.is_empty() => value.to_string(),
            name => name.clone(),
        };
        let mut names: BTreeMap<Value, String> =
            network.graph.values().map(|it| (it, own(it))).collect();
        for (source, next) in network.replacements() {
            names.insert(next, format!("{}'", own(source)));
        }
        for (name, value) in &network.names {
            let Some(value) = value else { continue };
            if names.get(value).is_some_and(|it| *it == value.to_string()) {
                names.insert(*value, name.clone());
            }
        }
        for (name, value) in network
            .losses()
            .map(|it| ("loss", it))
            .chain(network.outputs.iter().map(|(name, it)| (name.as_str(), *it)))
        {
            if network.graph.node(value).name.is_empty() {
                names.insert(value, name.to_owned());
            }
        }
        names
    }

    /// Returns the purposes of tensors: `input`, `param`, `state`, `activation`, `gradient` or
    /// `output`.
    #[must_use]
    pub fn kinds(&self) -> BTreeMap<Value, &'static str> {
        let network = &self.found.tiled.network;
        let outputs = network.fetched();
        let is_forward = network.forward();
        let kind = |value: Value| match &network.graph.node(value).source {
            Source::Input { .. } => "input",
            Source::Parameter(_) => "param",
            Source::Buffer(_) | Source::State => "state",
            Source::Operator(_) if outputs.contains(&value) => "output",
            Source::Operator(_) if is_forward[value.index()] => "activation",
            Source::Operator(_) => "gradient",
        };
        let mut kinds: BTreeMap<Value, &'static str> =
            network.graph.values().map(|it| (it, kind(it))).collect();
        for (source, next) in network.replacements() {
            kinds.insert(next, kind(source));
        }
        kinds
    }
}

fn bytes_per_axis(program: &Program, mesh: &Mesh) -> Vec<u64> {
    let mut bytes = vec![0; mesh.n_axes()];
    let steps =
        program.measured().into_iter().flat_map(|(n, steps)| steps.iter().map(move |it| (n, it)));
    for (n, step) in steps {
        let Kernel::Communicate(bucket) = &program.kernels[step.kernel] else { continue };
        for (sum, moved) in bytes.iter_mut().zip(bucket.bytes_per_axis(mesh)) {
            *sum += n * moved;
        }
    }
    bytes
}

fn prediction(program: &Program, topology: &Topology) -> Prediction {
    let cluster = topology.cluster();
    let per_axis = bytes_per_axis(program, &topology.mesh());
    let sum = |seconds: &dyn Fn(&[Step]) -> f64| {
        // `sum` of no numbers would be -0.
        program.measured().into_iter().fold(0.0, |sum, (n, steps)| sum + n as f64 * seconds(steps))
    };
    let of_level = |level: usize| sum(&|steps| topology.level_seconds(program, steps)[level]);
    let seconds: Vec<f64> = (0..topology.n_levels()).map(of_level).collect();
    let level = |(at, seconds): (usize, f64)| {
        let axes: Vec<usize> =
            (0..per_axis.len()).filter(|&axis| topology.level(axis) == at).collect();
        let bytes = axes.iter().map(|&axis| per_axis[axis]).sum();
        LevelLoad { name: cluster.levels[at].name.to_string(), axes, bytes, seconds }
    };
    let communication = |step: &Step| match &program.kernels[step.kernel] {
        Kernel::Communicate(bucket) => topology.bucket_seconds(bucket),
        _ => 0.0,
    };
    Prediction {
        cluster: cluster.name.to_string(),
        seconds: update_seconds(program, topology),
        serial_seconds: sum(&|steps| topology.serial_seconds(program, steps)),
        communication_seconds: sum(&|steps| steps.iter().map(communication).sum()),
        levels: seconds.into_iter().enumerate().map(level).collect(),
    }
}

/// Returns a time for people: `12.3 ms`.
#[must_use]
pub fn readable_seconds(seconds: f64) -> String {
    const UNITS: [(&str, f64); 4] = [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)];
    let fits = |it: &&(&str, f64)| seconds >= it.1;
    let (unit, size) = UNITS.iter().find(fits).unwrap_or(&("s", 1.0));
    format!("{:.1} {unit}", seconds / size)
}
