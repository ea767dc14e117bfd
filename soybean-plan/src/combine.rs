//! The functions that reductions and collectives combine values with.

use crate::descriptor::descriptor;

descriptor! {
    /// The function that combines several values into one.
    pub enum Combine {
        /// Their sum; 0 if there are none. That of integers is modulo 2^32.
        Sum = "sum",
        /// Their maximum; negative infinity, or the least integer, if there are none.
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

    /// Returns the value of no integers.
    #[must_use]
    pub const fn integer_identity(self) -> i32 {
        match self {
            Self::Sum => 0,
            Self::Max => i32::MIN,
        }
    }

    /// Combines two integers.
    #[must_use]
    #[inline(always)]
    pub const fn evaluate_integers(self, x: i32, y: i32) -> i32 {
        match self {
            Self::Sum => x.wrapping_add(y),
            Self::Max if x > y => x,
            Self::Max => y,
        }
    }
}
