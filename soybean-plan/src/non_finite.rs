//! What a training step does that is not finite.

use std::{fmt, str::FromStr};

/// What happens in a training step that is not finite: one whose loss, or the sum of whose squared gradients, is no number of single precision. The sum is too large for it before
/// the gradients are: one of 2e19 is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum NonFinite {
    /// Training ends with an error.
    #[default]
    Stop,
    /// The step leaves everything as it was.
    Skip,
    /// The step leaves everything as it was. Besides, gradients are those of the loss times a scale, by whose inverse they are multiplied before they are used; the scale
    /// is halved by such steps and doubled where there were none for long.
    Scale,
}

impl NonFinite {
    /// All choices, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Stop, Self::Skip, Self::Scale];

    /// The name as users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Skip => "skip",
            Self::Scale => "scale",
        }
    }

    /// What can be chosen, for error messages.
    #[must_use]
    pub fn expected() -> String {
        format!("one of {}", Self::ALL.map(|it| format!("\"{}\"", it.name())).join(", "))
    }

    /// Whether such a step leaves everything as it was.
    #[must_use]
    pub const fn skips(self) -> bool {
        match self {
            Self::Stop => false,
            Self::Skip | Self::Scale => true,
        }
    }
}

impl FromStr for NonFinite {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or_else(|| format!("must be {}, found \"{name}\"", Self::expected()))
    }
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
