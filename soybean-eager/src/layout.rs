//! Operators that rearrange elements.

use super::{
    Dim, Extents, Tensor,
    arena::Value,
    arithmetic::{broadcast_shape, repeated},
    slicing::stack,
    strides::{dense_strides, offsets},
};

impl Tensor {
    /// Returns the same elements in another shape. One extent may be -1: it becomes what the others
    /// leave. A tuple takes -1 beside constants of type `usize`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(x.reshape([3, 2]).to_vec(), x.to_vec());
    /// assert_eq!(x.reshape([2, 1, x.dim(1)]).shape(), [2, 1, 3]);
    /// assert_eq!(x.reshape([3, 1, -1]).shape(), [3, 1, 2]);
    /// const WIDTH: usize = 2;
    /// assert_eq!(x.reshape((-1, WIDTH)).shape(), [3, 2]);
    /// ```
    ///
    /// # Panics
    /// If the numbers of elements differ, or several extents are -1.
    #[must_use]
    pub fn reshape(self, shape: impl Extents) -> Self {
        self.reshaped(&self.inferred(shape))
    }

    /// Returns the extents with what the others leave in place of -1.
    pub(super) fn inferred(self, shape: impl Extents) -> Vec<usize> {
        let given = shape.given("reshape");
        let n_open = given.iter().filter(|it| it.is_none()).count();
        assert!(n_open <= 1, "`reshape`: only one extent can be -1, found {n_open}");
        let others: usize = given.iter().flatten().product();
        let rest = self.value().data.len() / others.max(1);
        given.into_iter().map(|it| it.unwrap_or(rest)).collect()
    }

    pub(super) fn reshaped(self, shape: &[usize]) -> Self {
        let value = self.value();
        let (before, after) = (value.data.len(), shape.iter().product::<usize>());
        let from = &value.shape;
        assert!(
            before == after,
            "`reshape`: {from:?} has {before} elements, {shape:?} has {after}"
        );
        Self::new(shape, &value.data).like(self)
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
        let flat = [value.shape[0], value.shape[1..].iter().product()];
        Self::new(flat, &value.data).like(self)
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
        Self::new(shape, &repeated(&self.value(), shape)).like(self)
    }

    /// Repeats the tensor along each dim as often as `repeats` says. If there are more numbers than
    /// dims, the first ones are those of new outer dims: PyTorch's `repeat`, NumPy's `tile`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[1.0, 2.0]);
    /// assert_eq!(x.repeat([3]).to_vec(), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    /// assert_eq!(x.repeat([2, 1]).shape(), [2, 2]);
    /// ```
    ///
    /// # Panics
    /// If there are fewer numbers than dims, or one is 0.
    #[must_use]
    pub fn repeat<const R: usize>(self, repeats: [usize; R]) -> Self {
        self.repeated(&repeats)
    }

    pub(super) fn repeated(self, repeats: &[usize]) -> Self {
        let from = self.shape();
        assert!(
            repeats.len() >= from.len() && !repeats.contains(&0),
            "`repeat`: a positive number for each dim of {from:?} is needed, found {repeats:?}"
        );
        let n_missing = repeats.len() - from.len();
        let from = [&vec![1; n_missing], &from[..]].concat();
        let (shape, strides): (Vec<usize>, Vec<usize>) = (
            from.iter().zip(repeats).map(|(extent, n)| extent * n).collect(),
            dense_strides(&from),
        );
        let element = |at: usize| {
            let (mut rest, mut offset) = (at, 0);
            for dim in (0..shape.len()).rev() {
                offset += rest % shape[dim] % from[dim] * strides[dim];
                rest /= shape[dim];
            }
            offset
        };
        let value = self.value();
        let data = (0..shape.iter().product()).map(|at| value.data[element(at)]).collect();
        Self::from_value(Value { shape, data }).like(self)
    }

    /// Repeats each element along a dim so many times in a row.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[1.0, 2.0]);
    /// assert_eq!(x.repeat_interleave(3, 0).to_vec(), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// If there is no such dim, or the number is 0.
    #[must_use]
    pub fn repeat_interleave(self, repeats: usize, dim: impl Dim) -> Self {
        let mut shape = self.shape();
        let dim = dim.index("repeat_interleave", shape.len());
        assert!(repeats > 0, "`repeat_interleave`: the number of repeats must be at least 1");
        let copies = stack(vec![self; repeats], dim + 1);
        shape[dim] *= repeats;
        copies.reshaped(&shape)
    }

    /// Moves the elements by `shift` places along a dim; what leaves it at one end enters at the
    /// other. Negative numbers move towards index 0.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([4], &[1.0, 2.0, 3.0, 4.0]);
    /// assert_eq!(x.roll(1, 0).to_vec(), [4.0, 1.0, 2.0, 3.0]);
    /// assert_eq!(x.roll(-1, 0).to_vec(), [2.0, 3.0, 4.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If there is no such dim.
    #[must_use]
    pub fn roll(self, shift: i64, dim: impl Dim) -> Self {
        self.rearranged("roll", dim, |index, extent| {
            let extent = i64::try_from(extent).expect("extents are far below 2^63");
            let index = i64::try_from(index).expect("indices are far below 2^63");
            usize::try_from((index - shift).rem_euclid(extent)).expect("it is not negative")
        })
    }

    /// Reverses the order of the elements along a dim.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 2], &[1.0, 2.0, 3.0, 4.0]);
    /// assert_eq!(x.flip(0).to_vec(), [3.0, 4.0, 1.0, 2.0]);
    /// assert_eq!(x.flip(-1).to_vec(), [2.0, 1.0, 4.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If there is no such dim.
    #[must_use]
    pub fn flip(self, dim: impl Dim) -> Self {
        self.rearranged("flip", dim, |index, extent| extent - 1 - index)
    }

    /// Returns the elements whose indices along a dim are a function of their indices there and of
    /// the extent.
    fn rearranged(self, name: &str, dim: impl Dim, from: impl Fn(usize, usize) -> usize) -> Self {
        let value = self.value();
        let dim = dim.index(name, value.shape.len());
        let (extent, stride) = (value.shape[dim], dense_strides(&value.shape)[dim]);
        let element = |at: usize| {
            let index = at / stride % extent;
            value.data[at - index * stride + from(index, extent) * stride]
        };
        let data = (0..value.data.len()).map(element).collect();
        Self::from_value(Value { shape: value.shape.clone(), data }).like(self)
    }

    /// Keeps the elements of the last two dims up to a diagonal, and puts 0 above it. Diagonal 0 is
    /// the main one; positive numbers lie above it, negative ones below.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(x.tril(0).to_vec(), [1.0, 0.0, 0.0, 4.0, 5.0, 0.0]);
    /// assert_eq!(x.tril(-1).to_vec(), [0.0, 0.0, 0.0, 4.0, 0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// If there are fewer than two dims.
    #[must_use]
    pub fn tril(self, diagonal: i64) -> Self {
        self.triangle("tril", |offset| offset <= diagonal)
    }

    /// Keeps the elements of the last two dims from a diagonal on, and puts 0 below it.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// assert_eq!(x.triu(0).to_vec(), [1.0, 2.0, 3.0, 0.0, 5.0, 6.0]);
    /// assert_eq!(x.triu(1).to_vec(), [0.0, 2.0, 3.0, 0.0, 0.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// If there are fewer than two dims.
    #[must_use]
    pub fn triu(self, diagonal: i64) -> Self {
        self.triangle("triu", |offset| offset >= diagonal)
    }

    /// Keeps the elements whose column less their row is one of these numbers.
    fn triangle(self, name: &str, is_kept: impl Fn(i64) -> bool) -> Self {
        let value = self.value();
        let [.., rows, columns] = value.shape[..] else {
            panic!("`{name}`: at least 2 dims are needed, shape is {:?}", value.shape)
        };
        let signed = |it: usize| i64::try_from(it).expect("indices are far below 2^63");
        let element = |(at, x): (usize, &f64)| {
            let offset = signed(at % columns) - signed(at / columns % rows);
            if is_kept(offset) { *x } else { 0.0 }
        };
        let data = value.data.iter().enumerate().map(element).collect();
        Self::from_value(Value { shape: value.shape.clone(), data }).like(self)
    }

    /// Reorders the dims: dim `i` of the result is dim `order[i]`; negative numbers count from the
    /// last.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 4, 6], &[0.0; 48]);
    /// assert_eq!(x.permute([2, 0, 1]).shape(), [6, 2, 4]);
    /// assert_eq!(x.permute([0, -1, -2]).shape(), [2, 6, 4]);
    /// let matrix = Tensor::new([2, 2], &[1.0, 2.0, 3.0, 4.0]);
    /// assert_eq!(matrix.permute([1, 0]).to_vec(), [1.0, 3.0, 2.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If `order` does not name every dim once.
    #[must_use]
    pub fn permute<const R: usize>(self, order: [impl Dim; R]) -> Self {
        let rank = self.shape().len();
        self.permuted(&order.map(|dim| dim.index("permute", rank)))
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
        Self::from_value(Value { shape, data }).like(self)
    }
}
