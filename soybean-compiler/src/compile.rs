//! The whole line, from a built graph to a program and its report.

use soybean_plan::{Mesh, Precision, Program, Topology, TopologyError};

use crate::{
    builder::Builder,
    fault::{At, ModelFault},
    limit::{self, OutOfMemory},
    lower::{Lowered, lowered_within},
    network::Network,
    optimizer::Optimizer,
    peak::Peak,
    pin,
    report::Report,
    share,
    tiling::{Objective, Request, Search, Strategy, Tiled, search, search_alone},
    value::Value,
};

/// What is asked of the compiler besides the model itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// The model's name.
    pub name: String,
    /// The number of ranks.
    pub n_gpus: usize,
    /// What is asked of the search.
    pub search: Request,
    /// With which numbers products are computed.
    pub precision: Precision,
    /// How parameters are updated.
    pub optimizer: Optimizer,
}

/// A compiled model.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What every rank does.
    pub program: Program,
    /// What is known of the plan.
    pub report: Report,
}

/// The most ranks.
pub const MAX_GPUS: usize = 1 << 12;

/// Compiles a model for a number of GPUs, for what its builder's mode says: without a loss in inference. `now` gives the time in milliseconds, from any origin.
///
/// # Errors
/// All faults of the model as a whole:
/// - a loss that is not a scalar, or parameters that do not reach it; in inference, a loss, or parameters that reach no output;
/// - a number of GPUs that is not from 1 to [`MAX_GPUS`], or over which nothing can be split;
/// - a cluster that has no place for that number, or none for the objective `time`;
/// - pins that do not fit the mesh;
/// - patterns of names of parameters that match none;
/// - a memory limit that no plan found keeps.
pub fn compile(
    builder: Builder,
    loss: impl Into<Option<Value>>,
    outputs: &[(String, Value)],
    options: &Options,
    now: &dyn Fn() -> f64,
) -> Result<Compiled, Vec<ModelFault>> {
    check_n_gpus(options.n_gpus).map_err(|fault| vec![fault])?;
    let topology = topology(options).map_err(|fault| vec![fault])?;
    let mesh = topology.as_ref().map_or_else(|| Mesh::new(options.n_gpus), Topology::mesh);
    let mut faults = pin::faults(builder.graph(), &mesh);
    faults.extend(options.optimizer.faults(builder.graph()));
    if !faults.is_empty() {
        return Err(faults);
    }
    let network = Network::new(builder, loss, outputs, &options.optimizer)?;
    let network = network.in_precision(options.precision);
    let start = now();
    let found = planned(&network, mesh, &options.search, search);
    let milliseconds = now() - start;
    let found = found.map_err(|it| vec![shortage(&network, mesh, options.search.strategy, &it)])?;
    let most = most_ranks_at_work(&found.tiled);
    if most < options.n_gpus {
        return Err(vec![too_many_gpus(options.n_gpus, most)]);
    }
    let memory = options.search.memory;
    let Lowered { program, holdings } = lowered_within(&options.name, &found.tiled, memory);
    let strategy = options.search.strategy;
    let report = Report::new(found, &program, holdings, strategy, milliseconds, memory);
    Ok(Compiled { program, report })
}

/// The plan that [`compile`] lowers: the best that is found for a network and, where the request says what memory each rank has, fits into it, with working copies if they
/// are wanted and of use. None if none that fits is found.
///
/// # Panics
/// Where [`search`] does.
#[must_use]
pub fn best_plan(network: &Network, mesh: Mesh, request: &Request) -> Option<Search> {
    planned(network, mesh, request, search_alone).ok()
}

/// Why no plan was found that fits.
struct Shortfall {
    /// The memory that each rank has.
    memory: u64,
    /// The most ranks at work in the best of all plans.
    most_at_work: usize,
    /// What the leanest plan found holds.
    peak: Peak,
}

fn planned(
    network: &Network,
    mesh: Mesh,
    request: &Request,
    search: fn(&Network, Mesh, &Request) -> Search,
) -> Result<Search, Shortfall> {
    if request.shares {
        let shared = network.shared();
        let found = search(&shared, mesh, request);
        let settled = |found: Search| Search { tiled: share::settled(&found.tiled), ..found };
        let fitting = match request.memory {
            None => Ok(settled(found)),
            // Copies live from their first reader to their last, which takes the memory that is short under a limit; only pinned tensors gain by them
            // there.
            // Strategies other than `auto` have one plan, which fits or does not.
            Some(memory) if network.pins().is_empty() || request.strategy != Strategy::Auto => {
                limit::checked(settled(found), memory)
            }
            Some(memory) => limit::fitting(&shared, found, memory)
                .and_then(|found| limit::checked(settled(found), memory)),
        };
        if let Ok(fitting) = fitting {
            return Ok(fitting);
        }
    }
    let found = search(network, mesh, request);
    let Some(memory) = request.memory else { return Ok(found) };
    let most_at_work = most_ranks_at_work(&found.tiled);
    let fitting = match request.strategy {
        Strategy::Auto => limit::fitting(network, found, memory),
        Strategy::Recursive | Strategy::Data | Strategy::Model => limit::checked(found, memory),
    };
    fitting.map_err(|peak| Shortfall { memory, most_at_work, peak })
}

fn check_n_gpus(n_gpus: usize) -> Result<(), ModelFault> {
    let fault = |message: String| Err(ModelFault { at: At::Gpus, message, help: None });
    if n_gpus == 0 || n_gpus > MAX_GPUS {
        return fault(format!("`gpus` must lie between 1 and {MAX_GPUS}, found {n_gpus}"));
    }
    Ok(())
}

/// Where the ranks stand, if that is known.
fn topology(options: &Options) -> Result<Option<Topology>, ModelFault> {
    if options.search.objective == Objective::Time && options.search.cluster.is_none() {
        let message = "the objective `time` needs a cluster, found none".to_owned();
        return Err(ModelFault { at: At::Gpus, message, help: None });
    }
    let fault = |error: TopologyError| ModelFault {
        at: At::Gpus,
        message: error.to_string(),
        help: error.fitting().map(|it| format!("use `gpus = {it}`, or another cluster")),
    };
    options.search.topology(options.n_gpus).map_err(fault)
}

/// The most ranks over which the work of any operator is split.
fn most_ranks_at_work(tiled: &Tiled) -> usize {
    let ranks = |form: &crate::signature::Form| {
        let axes = (0..form.0.len()).filter(|&axis| form.0[axis].is_some()).collect();
        tiled.mesh.group_size(axes)
    };
    tiled.forms.iter().flatten().map(ranks).max().unwrap_or(1)
}

fn shortage(network: &Network, mesh: Mesh, strategy: Strategy, found: &Shortfall) -> ModelFault {
    let &Shortfall { memory, most_at_work, ref peak } = found;
    match most_at_work < mesh.n_ranks() {
        true => too_many_gpus(mesh.n_ranks(), most_at_work),
        false => OutOfMemory { network, mesh, memory, strategy, peak }.fault(MAX_GPUS),
    }
}

fn too_many_gpus(n_gpus: usize, most: usize) -> ModelFault {
    let message =
        format!("no operator of this model can be split over {n_gpus} GPUs; the most is {most}");
    let help =
        format!("use `gpus = {most}`, or make the batch or a layer's width a multiple of {n_gpus}");
    ModelFault { at: At::Gpus, message, help: Some(help) }
}
