//! Simulates the time of a program's step on a described cluster, event by event.
//!
//! [`simulate`] runs the steps of a [`Program`] on each rank in the order of the CUDA runtime:
//! kernels in one lane and collectives in another, each after its predecessors
//! ([`Schedule`](soybean_plan::Schedule)). A kernel takes the time of the roofline
//! ([`Topology::step_seconds`](soybean_plan::Topology::step_seconds)). A collective is a set of
//! transfers between ranks. After the latency of its level, a transfer gets a fair share of every
//! link on its path until all its bytes have arrived. On a cluster whose collectives were measured
//! ([`Measurements`](soybean_plan::Measurements)), it takes its measured time, and loads no links.
//!
//! The result is a prediction, not a measurement. It leaves out:
//!
//! - the host, and the transfers of the batch to the GPUs and of the loss back;
//! - the arithmetic of reductions between ranks, and the load of collectives on a GPU's memory and
//!   cores;
//! - the packing of tiles for NCCL, and the fusion of some maps into the products before them.

mod engine;
mod links;
mod settings;
mod simulation;
mod task;
mod trace;
mod transfers;

use soybean_plan::{Cluster, Program, Topology, TopologyError};

pub use settings::{Lanes, Phase, Settings, Transport};
pub use simulation::{LinkLoad, RankLoad, Simulation, Span};

/// Simulates one step of a program on a cluster: rank `i` on the `i`-th of the GPUs that
/// [`Topology::new`] chooses.
///
/// # Errors
/// If the cluster has too few GPUs.
pub fn simulate(
    program: &Program,
    cluster: &Cluster,
    settings: &Settings,
) -> Result<Simulation, TopologyError> {
    let mesh = program.tables.mesh;
    let topology = Topology::new(cluster, mesh.n_ranks())?;
    let steps = match settings.phase {
        Phase::Measured => program.measured_step(),
        Phase::Accumulate => &program.accumulate,
        Phase::Evaluate(entry) => &program.evaluate[entry],
    };
    let (tasks, schedule) = task::tasks(program, steps, settings.transport, &topology);
    let links = links::Links::new(&topology);
    let outcome = engine::run(&tasks, &schedule, &mesh, &links, settings.lanes);
    Ok(Simulation::new(&program.tables.name, &tasks, &links, outcome))
}
