//! Comparisons, and operators that select by them.

use super::{
    Operand, Tensor,
    arithmetic::{broadcast, zip},
    reduction::larger,
};

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident $symbol:tt,)*) => {
        $(
            $(#[$doc])*
            /// The other operand is a tensor, broadcast as in arithmetic, or a number. No gradient
            /// flows through a comparison.
            ///
            /// # Panics
            /// If the shapes do not broadcast.
            #[must_use]
            pub fn $name(self, other: impl Operand) -> Self {
                zip(stringify!($name), self, other.into_tensor(), |left, right| {
                    f64::from(u8::from(left $symbol right))
                })
            }
        )*
    };
}

impl Tensor {
    comparisons! {
        /// Returns 1 where `x == other`, else 0.
        eq ==,
        /// Returns 1 where `x != other`, else 0.
        ne !=,
        /// Returns 1 where `x < other`, else 0.
        lt <,
        /// Returns 1 where `x <= other`, else 0.
        le <=,
        /// Returns 1 where `x > other`, else 0.
        gt >,
        /// Returns 1 where `x >= other`, else 0.
        ge >=,
    }

    /// Returns the larger of `x` and `other`, a tensor or a number. Equal operands share the
    /// gradient.
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn maximum(self, other: impl Operand) -> Self {
        zip("maximum", self, other.into_tensor(), larger)
    }

    /// Returns the smaller of `x` and `other`, a tensor or a number. Equal operands share the
    /// gradient.
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn minimum(self, other: impl Operand) -> Self {
        zip("minimum", self, other.into_tensor(), |left, right| -larger(-left, -right))
    }

    /// Returns `low` where `x < low`, `high` where `x > high`, else `x`. The gradient flows where
    /// `low <= x <= high`.
    ///
    /// # Panics
    /// If `low > high` (PyTorch returns `high`).
    #[must_use]
    pub fn clamp(self, low: f64, high: f64) -> Self {
        assert!(low <= high, "`clamp`: `high` must not be less than `low`, found {low} and {high}");
        self.map(|x| x.clamp(low, high))
    }

    /// Returns `x` where `condition` is not 0, else `other`, a tensor or a number; all are
    /// broadcast. This is PyTorch's `where`, which is a keyword in Rust.
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn where_(self, condition: Self, other: impl Operand) -> Self {
        broadcast("where_", &[self, condition, other.into_tensor()], |it| {
            if it[1] != 0.0 { it[0] } else { it[2] }
        })
    }
}
