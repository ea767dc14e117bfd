//! Operators that rearrange elements.

use super::{
    Dim, Tensor,
    arena::Value,
    arithmetic::{broadcast, broadcast_shape},
    strides::{dense_strides, offsets},
};

impl Tensor {
    /// Returns the same elements in another shape.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(x.reshape([3, 2]).to_vec(), x.to_vec());
    /// assert_eq!(x.reshape([2, 1, x.dim(1)]).shape(), [2, 1, 3]);
    /// ```
    ///
    /// # Panics
    /// If the numbers of elements differ.
    #[must_use]
    pub fn reshape<const R: usize>(self, shape: [usize; R]) -> Self {
        self.reshaped(&shape)
    }

    pub(super) fn reshaped(self, shape: &[usize]) -> Self {
        let value = self.value();
        let (before, after) = (value.data.len(), shape.iter().product::<usize>());
        let from = &value.shape;
        assert!(
            before == after,
            "`reshape`: {from:?} has {before} elements, {shape:?} has {after}"
        );
        Self::new(shape, &value.data)
    }

    /// Flattens all dims but the first: `[n, a, b]` becomes `[n, a * b]`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([4, 2, 6], &[0.0; 48]);
    /// assert_eq!(x.flatten().shape(), [4, 12]);
    /// ```
    ///
    /// # Panics
    /// If the tensor has no dims.
    #[must_use]
    pub fn flatten(self) -> Self {
        let value = self.value();
        assert!(!value.shape.is_empty(), "`flatten`: a scalar has no dim 0");
        Self::new([value.shape[0], value.shape[1..].iter().product()], &value.data)
    }

    /// Swaps the last two dims.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(x.transpose().shape(), [3, 2]);
    /// assert_eq!(x.transpose().to_vec(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    /// // Dims before the last two are kept.
    /// assert_eq!(Tensor::new([4, 2, 6], &[0.0; 48]).transpose().shape(), [4, 6, 2]);
    /// ```
    ///
    /// # Panics
    /// If there are fewer than two dims.
    #[must_use]
    pub fn transpose(self) -> Self {
        let rank = self.value().shape.len();
        assert!(rank >= 2, "`transpose`: at least 2 dims are needed, shape is {:?}", self.shape());
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        self.permuted(&order)
    }

    /// Inserts a dim of extent 1 before this one; -1 appends it.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([4, 6], &[0.0; 24]);
    /// assert_eq!(x.unsqueeze(0).shape(), [1, 4, 6]);
    /// assert_eq!(x.unsqueeze(1).shape(), [4, 1, 6]);
    /// assert_eq!(x.unsqueeze(-1).shape(), [4, 6, 1]);
    /// ```
    ///
    /// # Panics
    /// If the result would have no such dim.
    #[must_use]
    pub fn unsqueeze(self, dim: impl Dim) -> Self {
        let mut shape = self.shape();
        shape.insert(dim.index("unsqueeze", shape.len() + 1), 1);
        self.reshaped(&shape)
    }

    /// Removes this dim of extent 1.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([4, 1, 6], &[0.0; 24]);
    /// assert_eq!(x.squeeze(1).shape(), [4, 6]);
    /// ```
    ///
    /// # Panics
    /// If there is no such dim, or its extent is not 1 (PyTorch keeps it).
    #[must_use]
    pub fn squeeze(self, dim: impl Dim) -> Self {
        let mut shape = self.shape();
        let dim = dim.index("squeeze", shape.len());
        let extent = shape.remove(dim);
        assert!(extent == 1, "`squeeze`: dim {dim} must have extent 1, found {extent}");
        self.reshaped(&shape)
    }

    /// Broadcasts the tensor to this shape. Every extent is given: there is no -1.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let row = Tensor::new([3], &[1.0, 2.0, 3.0]);
    /// assert_eq!(row.expand([2, 3]).to_vec(), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    /// let column = Tensor::new([2, 1], &[1.0, 2.0]);
    /// assert_eq!(column.expand([2, 3]).to_vec(), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If the tensor does not broadcast to the shape.
    #[must_use]
    pub fn expand<const R: usize>(self, shape: [usize; R]) -> Self {
        self.expanded(&shape)
    }

    pub(super) fn expanded(self, shape: &[usize]) -> Self {
        let from = self.shape();
        assert!(
            broadcast_shape(&from, shape).is_some_and(|it| it == shape),
            "`expand`: {from:?} does not expand to {shape:?}"
        );
        let zeros = Self::new(shape, &vec![0.0; shape.iter().product()]);
        broadcast("expand", &[self, zeros], |it| it[0])
    }

    /// Reorders the dims: dim `i` of the result is dim `order[i]`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 4, 6], &[0.0; 48]);
    /// assert_eq!(x.permute([2, 0, 1]).shape(), [6, 2, 4]);
    /// let matrix = Tensor::new([2, 2], &[1.0, 2.0, 3.0, 4.0]);
    /// assert_eq!(matrix.permute([1, 0]).to_vec(), [1.0, 3.0, 2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If `order` does not name every dim once.
    #[must_use]
    pub fn permute<const R: usize>(self, order: [usize; R]) -> Self {
        self.permuted(&order)
    }

    pub(super) fn permuted(self, order: &[usize]) -> Self {
        let value = self.value();
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        assert!(
            sorted.into_iter().eq(0..value.shape.len()),
            "`permute`: {order:?} does not name every dim of shape {:?} once",
            value.shape
        );
        let strides = dense_strides(&value.shape);
        let order_of = |list: &[usize]| order.iter().map(|dim| list[*dim]).collect::<Vec<_>>();
        let (shape, strides) = (order_of(&value.shape), order_of(&strides));
        let data = offsets(&shape, &strides).map(|offset| value.data[offset]).collect();
        Self::from_value(Value { shape, data })
    }
}
