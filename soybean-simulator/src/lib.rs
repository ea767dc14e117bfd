//! How long a step of a program takes on a described cluster, simulated event by event.
//!
//! [`simulate`] takes each rank through the steps of a [`Program`] as the CUDA runtime orders them: kernels in one lane, collectives in another, each waiting for what it needs
//! ([`Schedule`](soybean_plan::Schedule)). A kernel takes the time of the roofline ([`Topology::step_seconds`](soybean_plan::Topology::step_seconds)). A collective is what each rank takes from others;
//! after the latency of its level a transfer has its fair share of every link on its way until all its bytes have arrived.
//!
//! What comes out is a prediction from the figures of data sheets, not a measurement. It leaves out:
//!
//! - the host, the batch's way to the GPUs and the loss's way back;
//! - the arithmetic of reductions between ranks, and what collectives take of a GPU's own memory and cores;
//! - the packing of tiles that NCCL needs, and that the runtime writes some maps into the products before them.

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

/// Simulates one step of a program on a cluster: rank `i` on the `i`-th of the GPUs that [`Topology::new`] chooses.
///
/// # Errors
/// If the cluster has no place for so many ranks.
pub fn simulate(
    program: &Program,
    cluster: &Cluster,
    settings: &Settings,
) -> Result<Simulation, TopologyError> {
    let mesh = program.tables.mesh;
    let topology = Topology::new(cluster, mesh.n_ranks())?;
    let steps = match settings.phase {
        Phase::Measured => program.measured(),
        Phase::Evaluate => &program.evaluate,
    };
    let (tasks, schedule) = task::tasks(program, steps, settings.transport, |step| {
        topology.step_seconds(program, step)
    });
    let links = links::Links::new(&topology);
    let outcome = engine::run(&tasks, &schedule, &mesh, &links, settings.lanes);
    Ok(Simulation::new(&program.tables.name, &tasks, &links, outcome))
}
