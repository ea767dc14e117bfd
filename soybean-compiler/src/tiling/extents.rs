//! Which dims a search may pad.

use std::str::FromStr;

use super::by_name;

/// The dims that a search may pad, so that the ranks divide them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Padding {
    /// Those for which the plan is better.
    #[default]
    Auto,
    /// None.
    Off,
    /// All that the ranks do not divide.
    All,
}

impl Padding {
    /// All choices with their names.
    pub const NAMES: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("off", Self::Off), ("all", Self::All)];

    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::All => "all",
        }
    }
}

impl FromStr for Padding {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        by_name("padding", "choices", &Self::NAMES, name)
    }
}
