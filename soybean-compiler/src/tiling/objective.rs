//! Objectives of the search.

use std::str::FromStr;

use super::by_name;

/// The objective that the search minimizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Objective {
    /// The bytes that a training step, or in inference a prediction, moves between ranks.
    #[default]
    Bytes,
    /// The time of a step or a prediction on a cluster, as its topology predicts it.
    Time,
}

impl Objective {
    /// All objectives with their names.
    pub const NAMES: [(&'static str, Self); 2] = [("bytes", Self::Bytes), ("time", Self::Time)];

    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Time => "time",
        }
    }
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        by_name("objective", "objectives", &Self::NAMES, name)
    }
}
