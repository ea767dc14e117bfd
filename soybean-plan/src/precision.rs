//! The precision that a device computes with.

use std::{fmt, str::FromStr};

/// The precision of matrix products, convolutions and attention, and of the tensors between them.
/// Parameters, optimizer states and all sums are always `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Precision {
    /// Single precision throughout.
    #[default]
    F32,
    /// Operands of products are rounded to 10 bits of mantissa on devices with such units. In
    /// memory everything is `f32`.
    Tf32,
    /// Operands of products and the tensors between operators are `bf16`.
    Bf16,
}

impl Precision {
    /// All precisions, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::F32, Self::Tf32, Self::Bf16];

    /// Returns the name that users write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.name() == name);
        let known = || Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("expected one of {}, found `{name}`", known()))
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
