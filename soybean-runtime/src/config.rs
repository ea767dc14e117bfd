//! The configuration of a run: seed, learning rate, device, threads.

use std::{fmt, str::FromStr, time::Duration};

use soybean_plan::NumberRange;

use crate::{Error, ErrorKind};

/// The configuration of a run. It does not change shapes or the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The seed of the parameters' initial values and of the noise of dropout.
    pub seed: u64,
    /// The learning rate of the first step; see [`crate::Trainer::set_learning_rate`].
    pub learning_rate: f32,
    /// The device on which the ranks run.
    pub device: Device,
    /// The number of CPU threads of all ranks together; `None` means one for each core. Every rank
    /// has at least one.
    pub threads: Option<usize>,
    /// True if GPUs replay each step as a captured CUDA graph. If false, each kernel is queued in
    /// every step.
    pub uses_graphs: bool,
    /// True if GPUs measure the algorithms of libraries at the first start, and keep the fastest.
    /// Several processes choose together, if their GPUs and libraries are alike.
    pub autotunes: bool,
    /// The time for which another process may be silent before this one fails; `None` means for
    /// ever. A tenth of it, but at most half a minute, passes before the silence is reported.
    pub peer_timeout: Option<Duration>,
    /// The time for which a step or a call of NCCL may last on GPUs before it is an error; `None`
    /// means for ever.
    pub step_timeout: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            learning_rate: 0.01,
            device: Device::Auto,
            threads: None,
            uses_graphs: true,
            autotunes: true,
            peer_timeout: Some(Duration::from_secs(300)),
            step_timeout: Some(Duration::from_secs(600)),
        }
    }
}

impl Config {
    /// Checks that all numbers are in their ranges.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let fault = |message: String| Error::new(ErrorKind::Choice, message);
        check_learning_rate(self.learning_rate)?;
        if self.threads == Some(0) {
            return Err(fault("`threads` must be at least 1, found 0".to_owned()));
        }
        for (name, limit) in
            [("peer_timeout", self.peer_timeout), ("step_timeout", self.step_timeout)]
        {
            if limit.is_some_and(|it| it.is_zero()) {
                let message = format!("`{name}` must be above 0 s, or `None` for ever, found 0 s");
                return Err(fault(message));
            }
        }
        Ok(())
    }
}

/// Checks the learning rate of a step.
pub(crate) fn check_learning_rate(learning_rate: f32) -> Result<(), Error> {
    let checked = NumberRange::NON_NEGATIVE.check("learning_rate", f64::from(learning_rate));
    checked.map_err(|message| Error::new(ErrorKind::Choice, message))
}

/// The kind of device on which the ranks of a program run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Device {
    /// GPUs if they can be used, otherwise the CPU.
    #[default]
    Auto,
    /// Virtual devices on the CPU, one for each rank.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
}

impl Device {
    /// All variants, in the order of their declaration.
    pub const ALL: &[Self] = &[Self::Auto, Self::Cpu, Self::Cuda];

    /// Returns the name that the command line uses.
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
