//! Tensors that are made of numbers alone.

use super::Tensor;

/// Returns the numbers `0, 1, ..` below `end`.
///
/// ```
/// use soybean::prelude::arange;
///
/// assert_eq!(arange(4).to_vec(), [0.0, 1.0, 2.0, 3.0]);
/// // Angles of rotary positions: a column of positions times a row of frequencies.
/// let frequencies = (arange(3) * (-2.0 / 6.0 * 10_000.0_f64.ln())).exp();
/// assert_eq!((arange(8).unsqueeze(1) * frequencies).shape(), [8, 3]);
/// ```
#[must_use]
pub fn arange(end: usize) -> Tensor {
    Tensor::new([end], &(0..end).map(|it| it as f64).collect::<Vec<_>>())
}

/// Returns a tensor of this shape whose elements are all `value`.
///
/// ```
/// use soybean::prelude::full;
///
/// assert_eq!(full([2, 2], 0.5).to_vec(), [0.5; 4]);
/// // A causal mask.
/// assert_eq!(full([2, 2], 1.0).tril(0).to_vec(), [1.0, 0.0, 1.0, 1.0]);
/// ```
#[must_use]
pub fn full<const R: usize>(shape: [usize; R], value: f64) -> Tensor {
    filled(&shape, value)
}

pub(super) fn filled(shape: &[usize], value: f64) -> Tensor {
    Tensor::new(shape, &vec![value; shape.iter().product()])
}
