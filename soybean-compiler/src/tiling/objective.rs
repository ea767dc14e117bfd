//! Objectives of the search.

use std::str::FromStr;

/// The objective that the search minimises.
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
        let known = Self::NAMES.map(|(name, _)| name).join(", ");
        let row = Self::NAMES.iter().find(|(it, _)| *it == name);
        row.map(|&(_, objective)| objective)
            .ok_or(format!("unknown objective `{name}`; the objectives are {known}"))
    }
}
