//! Comparisons, and operators that select by them.

use super::{
    Operand, Tensor,
    arithmetic::{broadcast, zip},
    reduction::larger,
};

macro_rules! comparisons {
    ($(#[$summary:meta] $(#[$example:meta])* $name:ident $symbol:tt,)*) => {
        $(
            #[$summary]
            /// The other operand is a tensor, broadcast as in arithmetic, or a number. No gradient
            /// flows through a comparison.
            $(#[$example])*
            ///
            /// # Panics
            /// If the shapes do not broadcast.
            #[must_use]
            pub fn $name(self, other: impl Operand) -> Self {
                zip(stringify!($name), self, other.into_tensor(), &|left, right| {
                    truth(left $symbol right)
                })
            }
        )*
    };
}

impl Tensor {
    comparisons! {
        /// Returns 1 where `x == other`, else 0.
        ///
        /// ```
        /// # use soybean::Tensor;
        /// let labels = Tensor::new([4], &[2.0, 0.0, 1.0, 2.0]);
        /// assert_eq!(labels.eq(2).to_vec(), [1.0, 0.0, 0.0, 1.0]);
        /// ```
        eq ==,
        /// Returns 1 where `x != other`, else 0.
        ///
        /// ```
        /// # use soybean::Tensor;
        /// let x = Tensor::new([2], &[1.0, f64::NAN]);
        /// assert_eq!(x.ne(1).to_vec(), [0.0, 1.0]);
        /// // Only NaN differs from itself.
        /// assert_eq!(x.ne(x).to_vec(), [0.0, 1.0]);
        /// ```
        ne !=,
        /// Returns 1 where `x < other`, else 0.
        ///
        /// ```
        /// # use soybean::Tensor;
        /// let x = Tensor::new([3], &[0.0, 0.25, 0.5]);
        /// assert_eq!(x.lt(0.25).to_vec(), [1.0, 0.0, 0.0]);
        /// ```
        lt <,
        /// Returns 1 where `x <= other`, else 0.
        ///
        /// ```
        /// # use soybean::Tensor;
        /// let positions = Tensor::new([3], &[0.0, 1.0, 2.0]);
        /// // A column and a row broadcast: a causal mask.
        /// let mask = positions.le(positions.unsqueeze(-1));
        /// assert_eq!(mask.to_vec(), [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
        /// ```
        le <=,
        /// Returns 1 where `x > other`, else 0.
        ///
        /// ```
        /// # use soybean::Tensor;
        /// let x = Tensor::new([4], &[-1.0, 0.0, 2.0, 3.0]);
        /// assert_eq!(x.gt(0).to_vec(), [0.0, 0.0, 1.0, 1.0]);
        /// // The share of positive elements.
        /// assert_eq!(x.gt(0).mean(..).item(), 0.5);
        /// ```
        gt >,
        /// Returns 1 where `x >= other`, else 0.
        ///
        /// ```
        /// # use soybean::Tensor;
        /// let x = Tensor::new([3], &[0.0, 0.25, 0.5]);
        /// assert_eq!(x.ge(0.25).to_vec(), [0.0, 1.0, 1.0]);
        /// ```
        ge >=,
    }

    /// Returns 1 where both conditions hold, else 0; written `x & other` and broadcast. A condition
    /// is a tensor that holds where it is not 0: a comparison, or a mask.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 2.0, 5.0]);
    /// assert_eq!((x.gt(0) & x.lt(3)).to_vec(), [0.0, 1.0, 0.0]);
    /// let mask = Tensor::new([3], &[1.0, 0.0, 1.0]);
    /// assert_eq!(x.gt(0).logical_and(mask).to_vec(), [0.0, 0.0, 1.0]);
    /// assert_eq!(x.where_(x.gt(0) & mask, -x).to_vec(), [1.0, -2.0, 5.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn logical_and(self, other: Self) -> Self {
        zip("logical_and", self, other, &|x, y| truth(x != 0.0 && y != 0.0))
    }

    /// Returns 1 where one of two conditions holds or both do, else 0; written `x | other` and
    /// broadcast.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 2.0, 5.0]);
    /// assert_eq!((x.lt(0) | x.gt(3)).to_vec(), [1.0, 0.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn logical_or(self, other: Self) -> Self {
        zip("logical_or", self, other, &|x, y| truth(x != 0.0 || y != 0.0))
    }

    /// Returns 1 where just one of two conditions holds, else 0; written `x ^ other` and broadcast.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 2.0, 5.0]);
    /// assert_eq!((x.gt(0) ^ x.gt(3)).to_vec(), [0.0, 1.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn logical_xor(self, other: Self) -> Self {
        zip("logical_xor", self, other, &|x, y| truth((x != 0.0) != (y != 0.0)))
    }

    /// Returns 1 where a condition does not hold, else 0; written `!x`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let mask = Tensor::new([3], &[1.0, 0.0, 2.0]);
    /// assert_eq!((!mask).to_vec(), [0.0, 1.0, 0.0]);
    /// assert_eq!(mask.logical_not().to_vec(), [0.0, 1.0, 0.0]);
    /// ```
    #[must_use]
    pub fn logical_not(self) -> Self {
        self.map(|x| truth(x == 0.0))
    }

    /// Returns the larger of `x` and `other`, a tensor or a number. Equal operands share the
    /// gradient.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 2.0, 5.0]);
    /// assert_eq!(x.maximum(0).to_vec(), [0.0, 2.0, 5.0]);
    /// let other = Tensor::new([3], &[4.0, 4.0, 4.0]);
    /// assert_eq!(x.maximum(other).to_vec(), [4.0, 4.0, 5.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn maximum(self, other: impl Operand) -> Self {
        let other = other.into_tensor();
        zip("maximum", self, other, &larger).chosen(self, other)
    }

    /// Returns the smaller of `x` and `other`, a tensor or a number. Equal operands share the
    /// gradient.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 2.0, 5.0]);
    /// assert_eq!(x.minimum(0).to_vec(), [-1.0, 0.0, 0.0]);
    /// let column = Tensor::new([2, 1], &[1.0, 3.0]);
    /// assert_eq!(x.minimum(column).to_vec(), [-1.0, 1.0, 1.0, -1.0, 2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn minimum(self, other: impl Operand) -> Self {
        let other = other.into_tensor();
        zip("minimum", self, other, &|left, right| -larger(-left, -right)).chosen(self, other)
    }

    /// Returns `low` where `x < low`, `high` where `x > high`, else `x`. The gradient flows where
    /// `low <= x <= high`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-2.0, 0.25, 3.0]);
    /// assert_eq!(x.clamp(-0.5, 1.0).to_vec(), [-0.5, 0.25, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If `low > high` (PyTorch returns `high`).
    #[must_use]
    pub fn clamp(self, low: f64, high: f64) -> Self {
        assert!(low <= high, "`clamp`: `high` must not be less than `low`, found {low} and {high}");
        self.map(|x| x.clamp(low, high)).like(self)
    }

    /// Returns `value` where `mask` is not 0, else `x`; both are broadcast.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[1.0, 2.0, 3.0]);
    /// assert_eq!(x.masked_fill(x.gt(1.5), -1.0).to_vec(), [1.0, -1.0, -1.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn masked_fill(self, mask: Self, value: f64) -> Self {
        zip("masked_fill", self, mask, &|x, mask| if mask != 0.0 { value } else { x }).like(self)
    }

    /// Returns `x` where `condition` is not 0, else `other`, a tensor or a number; all are
    /// broadcast. This is PyTorch's `where`, which is a keyword in Rust.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[1.0, 2.0, 3.0]);
    /// let condition = Tensor::new([3], &[1.0, 0.0, 1.0]);
    /// assert_eq!(x.where_(condition, -3).to_vec(), [1.0, -3.0, 3.0]);
    /// assert_eq!(x.where_(x.gt(1.5), x * 10).to_vec(), [10.0, 2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn where_(self, condition: Self, other: impl Operand) -> Self {
        let other = other.into_tensor();
        let choose = |it: &[f64]| if it[1] != 0.0 { it[0] } else { it[2] };
        broadcast("where_", &[self, condition, other], &choose).chosen(self, other)
    }

    /// Returns the tensor as one of integers if both of these are, from which it was chosen.
    fn chosen(self, one: Self, other: Self) -> Self {
        if one.is_integer { self.like(other) } else { self.as_numbers() }
    }
}

/// Returns 1 or 0.
fn truth(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}
