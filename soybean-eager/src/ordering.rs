//! Elements in order along a dim.

use std::cmp::Ordering;

use super::{Dim, Tensor};

impl Tensor {
    /// Returns the `k` largest elements along a dim, largest first, and their indices. Of equal
    /// elements the first comes first, and NaN is larger than all numbers. Gradients flow to the
    /// chosen elements, and none through the indices. Unlike in PyTorch, the dim is required.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 5.0, 2.0, 7.0, 0.0, 7.0]);
    /// let (values, indices) = x.topk(2, 1);
    /// assert_eq!(values.to_vec(), [5.0, 2.0, 7.0, 7.0]);
    /// assert_eq!(indices.to_vec(), [1.0, 2.0, 0.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the dim does not exist, or `k` is not among `1..=` its extent.
    #[must_use]
    pub fn topk(self, k: usize, dim: impl Dim) -> (Self, Self) {
        self.first("topk", Some(k), dim, "descending")
    }

    /// Returns the elements along a dim in `"ascending"` or `"descending"` order, and their
    /// indices. Equal elements keep their order, and NaN is larger than all numbers.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let (values, indices) = Tensor::new([3], &[2.0, 5.0, 2.0]).sort(0, "ascending");
    /// assert_eq!((values.to_vec(), indices.to_vec()), (vec![2.0, 2.0, 5.0], vec![0.0, 2.0, 1.0]));
    /// ```
    ///
    /// # Panics
    /// If the dim or the order does not exist.
    #[must_use]
    pub fn sort(self, dim: impl Dim, order: &str) -> (Self, Self) {
        self.first("sort", None, dim, order)
    }

    /// Returns the indices of the elements along a dim in `"ascending"` or `"descending"` order, as
    /// [`Self::sort`] does.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[2.0, 5.0, 2.0]);
    /// assert_eq!(x.argsort(0, "descending").to_vec(), [1.0, 0.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the dim or the order does not exist.
    #[must_use]
    pub fn argsort(self, dim: impl Dim, order: &str) -> Self {
        self.first("argsort", None, dim, order).1
    }

    /// Returns the first `k` elements in order, or all, and their indices.
    fn first(self, name: &str, k: Option<usize>, dim: impl Dim, order: &str) -> (Self, Self) {
        let shape = self.shape();
        let extent = shape[dim.index(name, shape.len())];
        let k = k.unwrap_or(extent);
        assert!((1..=extent).contains(&k), "`{name}`: `k` is from 1 to {extent}, found {k}");
        let is_ascending = match order {
            "ascending" => true,
            "descending" => false,
            _ => {
                panic!("`{name}`: `order` must be \"ascending\" or \"descending\", found {order:?}")
            }
        };
        let indices = |line: &[f64]| {
            let mut indices: Vec<usize> = (0..line.len()).collect();
            indices.sort_by(|&one, &other| {
                let order = by_size(line[one], line[other]);
                if is_ascending { order } else { order.reverse() }
            });
            indices.truncate(k);
            indices
        };
        let values = |line: &[f64]| indices(line).into_iter().map(|it| line[it]).collect();
        let numbers = |line: &[f64]| indices(line).into_iter().map(|it| it as f64).collect();
        (self.along(name, dim, &values), self.along(name, dim, &numbers).to_i32())
    }
}

/// Compares numbers; NaN is larger than all others.
fn by_size(x: f64, y: f64) -> Ordering {
    x.partial_cmp(&y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
}
