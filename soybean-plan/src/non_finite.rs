//! The reaction to training steps with results that are not finite.

use std::{fmt, str::FromStr};

/// The reaction to a training step that is not finite.
///
/// A step is not finite if its loss, or the sum of all squared gradients, is no finite number of
/// single precision. The sum overflows before the gradients do: one gradient of 2e19 is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum NonFinite {
    /// Training stops with an error.
    #[default]
    Stop,
    /// The step changes nothing.
    Skip,
    /// The step changes nothing, and the loss is scaled before gradients are taken. Gradients are
    /// multiplied by the inverse of the scale before they are used. Such steps halve the scale, and
    /// it is doubled after a long time without them.
    Scale,
}

impl NonFinite {
    /// All choices, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Stop, Self::Skip, Self::Scale];

    /// Returns the name that users write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Skip => "skip",
            Self::Scale => "scale",
        }
    }

    /// Returns the list of choices for error messages.
    #[must_use]
    pub fn expected() -> String {
        format!("one of {}", Self::ALL.map(|it| format!("\"{}\"", it.name())).join(", "))
    }

    /// Returns true if such a step changes nothing and training continues.
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
