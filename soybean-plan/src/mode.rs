//! The mode of a program: training or inference.

use std::{fmt, str::FromStr};

/// The task that a model is compiled for, which also decides how its plan is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// Training steps and evaluations.
    #[default]
    Training,
    /// The forward computation alone: no loss, no gradients, no updates.
    Inference,
}

impl Mode {
    /// All modes with their names.
    pub const NAMES: [(&'static str, Self); 2] =
        [("training", Self::Training), ("inference", Self::Inference)];

    /// Returns the name that users write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Inference => "inference",
        }
    }

    /// Returns the name of the run by which plans of this mode are measured, if every step updates.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Training => "training step",
            Self::Inference => "prediction",
        }
    }

    /// Returns the name of the run by which plans of this mode are measured, if so many steps share
    /// an update, `update of 8 steps`, or there are so many entries, `round of calls`, or in
    /// training `round of steps`.
    #[must_use]
    pub fn unit_of(self, accumulate: u64, n_entries: usize) -> String {
        match (self, accumulate, n_entries) {
            (Self::Training, 2.., _) => format!("update of {accumulate} steps"),
            (Self::Training, _, 2..) => "round of steps".to_owned(),
            (Self::Inference, _, 2..) => "round of calls".to_owned(),
            (Self::Training | Self::Inference, ..) => self.unit().to_owned(),
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::NAMES.map(|(name, _)| name).join(", ");
        let found = Self::NAMES.iter().find(|(it, _)| *it == name);
        found.map(|&(_, mode)| mode).ok_or(format!("expected one of {known}, found `{name}`"))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
