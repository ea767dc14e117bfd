//! One simulated step of a network on some GPUs under a strategy.

use std::error::Error;

use soybean_compiler::{Objective, Options, SearchRequest, Strategy, compile, optimizer};
use soybean_plan::{Cluster, Precision};
use soybean_simulator::{Settings, Transport, simulate};
use soybean_zoo::Model;

/// The compared plans, in the order of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Data parallelism.
    Data,
    /// Every layer is split by its outputs.
    Model,
    /// The plan with the fewest bytes.
    Soybean,
    /// The plan with the least predicted time.
    ByTime,
}

impl Plan {
    /// All plans in declaration order.
    pub(crate) const ALL: [Self; 4] = [Self::Data, Self::Model, Self::Soybean, Self::ByTime];

    /// Returns the name on the page.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Model => "model",
            Self::Soybean => "soybean",
            Self::ByTime => "by time",
        }
    }

    fn request(self, cluster: &Cluster) -> SearchRequest {
        let strategy = match self {
            Self::Data => Strategy::Data,
            Self::Model => Strategy::Model,
            Self::Soybean | Self::ByTime => Strategy::Auto,
        };
        let objective = match self {
            Self::Data | Self::Model | Self::Soybean => Objective::Bytes,
            Self::ByTime => Objective::Time,
        };
        let cluster = Some(cluster.clone());
        SearchRequest { strategy, cluster, objective, ..SearchRequest::default() }
    }
}

/// The extent of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    All,
    Quick,
}

/// The cluster of the steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) transport: Transport,
}

/// The results of a simulated step.
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
    /// Returns the time of the step beyond its kernels, relative to the kernels.
    pub(crate) fn overhead(&self) -> f64 {
        (self.seconds - self.compute_seconds) / self.compute_seconds
    }
}

/// Simulates one training step of a network.
pub(crate) fn figures(
    model: &Model,
    machine: Machine<'_>,
    n_gpus: usize,
    plan: Plan,
) -> Result<Figures, Box<dyn Error>> {
    let options = Options {
        name: "network".to_owned(),
        n_gpus,
        search: plan.request(machine.cluster),
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
