//! The functions that reductions and collectives combine values with.

use crate::descriptor::descriptor;

descriptor! {
    /// The function that combines several values into one.
    pub enum Combine {
        /// Their sum; 0 if there are none.
        Sum = "sum",
        /// Their maximum; negative infinity if there are none.
        Max = "max",
    }
}

impl Combine {
    /// Returns the value of no values.
    #[must_use]
    pub const fn identity(self) -> f64 {
        match self {
            Self::Sum => 0.0,
            Self::Max => f64::NEG_INFINITY,
        }
    }

    /// Combines two values.
    #[must_use]
    pub const fn evaluate(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Sum => x + y,
            Self::Max => x.max(y),
        }
    }
}
