//! What a run decides: seed, learning rate, device, threads.

use std::{fmt, str::FromStr};

/// The choices of a run that are neither shape nor plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The seed of the parameters' first values and of what dropout drops.
    pub seed: u64,
    /// The learning rate of the first step; see [`crate::Trainer::set_learning_rate`].
    pub learning_rate: f32,
    /// Where the ranks run.
    pub device: Device,
    /// The number of CPU threads of all ranks together; all cores if `None`. Every rank has at least one.
    pub threads: Option<usize>,
    /// Whether GPUs get whole steps with one call, as graphs that were captured; if not, each kernel is queued anew in every step.
    pub uses_graphs: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            learning_rate: 0.01,
            device: Device::Auto,
            threads: None,
            uses_graphs: true,
        }
    }
}

/// Where the ranks of a program run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Device {
    /// The best device that is there.
    #[default]
    Auto,
    /// Virtual devices on the CPU, one for each rank.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
}

impl Device {
    /// All choices, in the order of their declaration.
    pub const ALL: &[Self] = &[Self::Auto, Self::Cpu, Self::Cuda];

    /// The name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|it| it.name() == name);
        found.copied().ok_or_else(|| format!("expected auto, cpu or cuda, found `{name}`"))
    }
}
