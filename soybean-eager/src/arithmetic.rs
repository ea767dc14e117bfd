//! `+ - * /` with NumPy's broadcasting, between tensors and between tensors and numbers, and `& | ^
//! !` of conditions.

use std::{
    borrow::Cow,
    ops::{
        Add, AddAssign, BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Div,
        DivAssign, Mul, MulAssign, Neg, Not, Sub, SubAssign,
    },
};

use soybean_plan::Binary;

use super::{
    Tensor,
    arena::Value,
    strides::{dense_strides, offsets},
};

/// The right operand of `+ - * /`: a tensor or a number.
pub trait Operand {
    /// Converts the operand to a tensor; a number becomes a scalar.
    fn into_tensor(self) -> Tensor;
}

impl Operand for Tensor {
    fn into_tensor(self) -> Tensor {
        self
    }
}

macro_rules! impl_number {
    ($($number:ty),*) => {
        $(impl Operand for $number {
            fn into_tensor(self) -> Tensor {
                Tensor::scalar(f64::from(self))
            }
        })*
    };
}

impl_number!(f32, f64);

impl Operand for i32 {
    fn into_tensor(self) -> Tensor {
        Tensor::integers([], &[self])
    }
}

macro_rules! impl_operator {
    ($($operator:ident $method:ident $symbol:tt $of_integers:expr, $assign:ident $assign_method:ident,)*) => {
        $(
            // One generic implementation: the type of `x * 2.0` is known before that of the
            // literal.
            impl<O: Operand> $operator<O> for Tensor {
                type Output = Self;
                fn $method(self, right: O) -> Self {
                    let right = right.into_tensor();
                    let of_numbers = |left, right| left $symbol right;
                    exact(stringify!($method), [self, right], &of_numbers, $of_integers)
                }
            }
            impl<O: Operand> $assign<O> for Tensor {
                fn $assign_method(&mut self, right: O) {
                    *self = *self $symbol right;
                }
            }
            impl_operator!(@left $operator $method $symbol f64);
            impl_operator!(@left $operator $method $symbol i32);
        )*
    };
    // One float and one integer type on the left: with two of a kind, `(2.0 * x).relu()` would need
    // an annotation.
    (@left $operator:ident $method:ident $symbol:tt $number:ty) => {
        impl $operator<Tensor> for $number {
            type Output = Tensor;
            fn $method(self, right: Tensor) -> Tensor {
                self.into_tensor() $symbol right
            }
        }
    };
}

impl_operator! {
    Add add + Some(i32::wrapping_add), AddAssign add_assign,
    Sub sub - Some(i32::wrapping_sub), SubAssign sub_assign,
    Mul mul * Some(i32::wrapping_mul), MulAssign mul_assign,
    Div div / None, DivAssign div_assign,
}

/// Operators of conditions, which are tensors that hold where they are not 0.
macro_rules! impl_condition {
    ($($operator:ident $method:ident $logical:ident $assign:ident $assign_method:ident,)*) => {
        $(
            impl $operator for Tensor {
                type Output = Self;
                fn $method(self, right: Self) -> Self {
                    self.$logical(right)
                }
            }
            impl $assign for Tensor {
                fn $assign_method(&mut self, right: Self) {
                    *self = self.$logical(right);
                }
            }
        )*
    };
}

impl_condition! {
    BitAnd bitand logical_and BitAndAssign bitand_assign,
    BitOr bitor logical_or BitOrAssign bitor_assign,
    BitXor bitxor logical_xor BitXorAssign bitxor_assign,
}

impl Not for Tensor {
    type Output = Self;
    fn not(self) -> Self {
        self.logical_not()
    }
}

impl Neg for Tensor {
    type Output = Self;
    fn neg(self) -> Self {
        if self.is_integer { 0 - self } else { self.map(|x| -x) }
    }
}

impl Tensor {
    /// Returns the largest integer that is not above `x / other`, a tensor or a number; both are
    /// broadcast. No gradient flows through it. Integers divided by 0 give 0.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-7.0, 7.0, 6.0]);
    /// assert_eq!(x.floor_divide(2).to_vec(), [-4.0, 3.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn floor_divide(self, other: impl Operand) -> Self {
        let of_numbers = |left, right| Binary::FloorDivide.evaluate(left, right);
        let operands = [self, other.into_tensor()];
        exact("floor_divide", operands, &of_numbers, Some(soybean_plan::floor_divide))
    }

    /// Returns `x - floor(x / other) other` without rounding on the way. Its sign is that of
    /// `other`, a tensor or a number: Python's `%`, and not Rust's. An integer by 0 is itself.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-7.0, 7.0, 6.0]);
    /// assert_eq!(x.remainder(2).to_vec(), [1.0, 1.0, 0.0]);
    /// assert_eq!(x.remainder(-2).to_vec(), [-1.0, -1.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn remainder(self, other: impl Operand) -> Self {
        let of_numbers = |left, right| Binary::Remainder.evaluate(left, right);
        let operands = [self, other.into_tensor()];
        exact("remainder", operands, &of_numbers, Some(soybean_plan::remainder))
    }
}

// These are not generic: they would be compiled in the user's crate, which is rarely optimized
// without `--release`. Dev profiles can optimize this crate alone.

/// Applies a function to pairs of elements of two tensors, which are broadcast. It is that of
/// integers, if there is one and both tensors are of integers, and else that of numbers.
fn exact(
    name: &str,
    [left, right]: [Tensor; 2],
    of_numbers: &dyn Fn(f64, f64) -> f64,
    of_integers: Option<fn(i32, i32) -> i32>,
) -> Tensor {
    let Some(function) = of_integers.filter(|_| left.is_integer && right.is_integer) else {
        return zip(name, left, right, of_numbers);
    };
    #[expect(clippy::cast_possible_truncation, reason = "both are integers of 32 bits")]
    let of_elements = |x: f64, y: f64| f64::from(function(x as i32, y as i32));
    zip(name, left, right, &of_elements).like(left)
}

/// Applies `function` to pairs of elements of two tensors, which are broadcast.
pub(super) fn zip(
    name: &str,
    left: Tensor,
    right: Tensor,
    function: &dyn Fn(f64, f64) -> f64,
) -> Tensor {
    broadcast(name, &[left, right], &|it| function(it[0], it[1]))
}

/// Applies `function` to the elements of several tensors, which are broadcast.
pub(super) fn broadcast(
    name: &str,
    operands: &[Tensor],
    function: &dyn Fn(&[f64]) -> f64,
) -> Tensor {
    let values: Vec<_> = operands.iter().map(|it| it.value()).collect();
    let shape = values.iter().fold(Vec::new(), |shape, value| {
        broadcast_shape(&shape, &value.shape).unwrap_or_else(|| {
            panic!("`{name}`: shapes {shape:?} and {:?} do not broadcast", value.shape)
        })
    });
    let repeated: Vec<_> = values.iter().map(|value| repeated(value, &shape)).collect();
    let mut elements = vec![0.0; values.len()];
    let result = |at: usize| {
        for (element, all) in elements.iter_mut().zip(&repeated) {
            *element = all[at];
        }
        function(&elements)
    };
    let data = (0..shape.iter().product()).map(result).collect();
    Tensor::from_value(Value { shape, data })
}

pub(super) fn broadcast_shape(left: &[usize], right: &[usize]) -> Option<Vec<usize>> {
    let rank = left.len().max(right.len());
    let extent = |shape: &[usize], dim: usize| {
        (dim + shape.len()).checked_sub(rank).map_or(1, |index| shape[index])
    };
    (0..rank)
        .map(|dim| match (extent(left, dim), extent(right, dim)) {
            (left, right) if left == right => Some(left),
            (1, other) | (other, 1) => Some(other),
            _ => None,
        })
        .collect()
}

/// Returns the elements of a tensor that is broadcast to a shape.
pub(super) fn repeated<'a>(value: &'a Value, to: &[usize]) -> Cow<'a, [f64]> {
    let from = &value.shape;
    if from == to {
        return Cow::Borrowed(&value.data);
    }
    let dense = dense_strides(from);
    let n_missing = to.len() - from.len();
    let stride = |dim: usize| match dim.checked_sub(n_missing) {
        Some(index) if from[index] != 1 => dense[index],
        _ => 0,
    };
    let strides: Vec<usize> = (0..to.len()).map(stride).collect();
    offsets(to, &strides).map(|it| value.data[it]).collect()
}
