//! One step of a network on some GPUs under a strategy, simulated.

use std::error::Error;

use soybean_compiler::{Options, Request, Strategy, compile, optimizer};
use soybean_plan::{Cluster, Precision};
use soybean_simulator::{Settings, Transport, simulate};
use soybean_zoo::Model;

/// The strategies that are compared, with what the page calls them.
pub(crate) const STRATEGIES: [(&str, Strategy); 3] =
    [("data", Strategy::Data), ("model", Strategy::Model), ("soybean", Strategy::Auto)];

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    All,
    Quick,
}

/// Where steps run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) transport: Transport,
}

/// What a simulated step comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// The time of the step.
    pub(crate) seconds: f64,
    /// The time of the kernels of a rank.
    pub(crate) compute_seconds: f64,
    /// The memory that each rank needs.
    pub(crate) memory_bytes: u64,
}

impl Figures {
    /// The time by which the step is longer than its kernels, in times of the kernels.
    pub(crate) fn overhead(&self) -> f64 {
        (self.seconds - self.compute_seconds) / self.compute_seconds
    }
}

/// Simulates one training step of a network.
pub(crate) fn figures(
    model: &Model,
    machine: Machine<'_>,
    n_gpus: usize,
    strategy: Strategy,
) -> Result<Figures, Box<dyn Error>> {
    let options = Options {
        name: "network".to_owned(),
        n_gpus,
        search: Request { strategy, ..Request::default() },
        precision: Precision::F32,
        optimizer: optimizer("sgd", &[]).map_err(|fault| fault.message)?,
    };
    let Model { builder, loss, .. } = model.clone();
    let compiled = compile(builder, loss, &[], &options, &|| 0.0)
        .map_err(|faults| faults.into_iter().map(|it| it.message).collect::<Vec<_>>().join("; "))?;
    let settings = Settings { transport: machine.transport, ..Settings::default() };
    let simulation = simulate(&compiled.program, machine.cluster, &settings)?;
    Ok(Figures {
        seconds: simulation.seconds,
        compute_seconds: simulation.compute_seconds(),
        memory_bytes: compiled.report.peak_memory_bytes_per_gpu,
    })
}
