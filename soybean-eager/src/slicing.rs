//! Slices, padding, and concatenation of tensors.

use super::{Dim, Position, Tensor, arena::Value, strides::dense_strides};

impl Tensor {
    /// Returns the elements `start..end` along a dim: PyTorch's `narrow(dim, start, end - start)`.
    /// Negative numbers count from the end of the dim. There are no steps.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// let part = x.slice(1, 1, 3);
    /// assert_eq!((part.shape(), part.to_vec()), (vec![2, 2], vec![2.0, 3.0, 5.0, 6.0]));
    /// assert_eq!(x.slice(-1, -2, x.dim(-1)).to_vec(), part.to_vec());
    /// ```
    ///
    /// # Panics
    /// If the dim has no such elements, or the range is empty.
    #[must_use]
    pub fn slice(self, dim: impl Dim, start: impl Position, end: impl Position) -> Self {
        let shape = self.shape();
        let dim = dim.index("slice", shape.len());
        let (start, end) = (start.position("slice", shape[dim]), end.position("slice", shape[dim]));
        assert!(
            start < end && end <= shape[dim],
            "`slice`: {start}..{end} is not a part of dim {dim} of {shape:?}"
        );
        self.part(dim, start, end - start)
    }

    /// Splits into parts of these sizes along a dim, as `let [a, b] = x.split([3, 4], 1);`. Sizes
    /// are always an array, also if all are equal.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// let [left, right] = x.split([1, 2], 1);
    /// assert_eq!((left.shape(), left.to_vec()), (vec![2, 1], vec![1.0, 4.0]));
    /// assert_eq!((right.shape(), right.to_vec()), (vec![2, 2], vec![2.0, 3.0, 5.0, 6.0]));
    /// ```
    ///
    /// # Panics
    /// If the dim does not exist, or a size is 0, or the sizes do not add up to its extent.
    #[must_use]
    pub fn split<const N: usize>(self, sizes: [usize; N], dim: impl Dim) -> [Self; N] {
        let mut parts = self.parts(&sizes, dim).into_iter();
        sizes.map(|_| parts.next().expect("one part for each size"))
    }

    /// Splits into so many parts along a dim, as `let [q, k, v] = x.chunk(3, -1);`. They are equal,
    /// but the last one may be smaller.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    /// let [left, right] = x.chunk(2, 0);
    /// assert_eq!((left.to_vec(), right.to_vec()), (vec![1.0, 2.0, 3.0], vec![4.0, 5.0]));
    /// ```
    ///
    /// # Panics
    /// If there is no such dim, or it has no so many parts (PyTorch returns fewer), or the pattern
    /// has another number of them.
    #[must_use]
    pub fn chunk<const N: usize>(self, chunks: usize, dim: impl Dim) -> [Self; N] {
        self.chunks(chunks, dim).try_into().unwrap_or_else(|parts: Vec<Self>| {
            panic!("`chunk`: {} parts, but {N} are taken", parts.len())
        })
    }

    pub(super) fn chunks(self, chunks: usize, dim: impl Dim) -> Vec<Self> {
        let shape = self.shape();
        let extent = shape[dim.index("chunk", shape.len())];
        let size = extent.div_ceil(chunks.max(1));
        assert!(
            extent.div_ceil(size) == chunks,
            "`chunk`: a dim of {extent} elements has no {chunks} parts of {size}"
        );
        let sizes: Vec<usize> = (0..chunks).map(|at| size.min(extent - at * size)).collect();
        self.parts(&sizes, dim)
    }

    pub(super) fn parts(self, sizes: &[usize], dim: impl Dim) -> Vec<Self> {
        let shape = self.shape();
        let dim = dim.index("split", shape.len());
        assert!(
            !sizes.contains(&0) && sizes.iter().sum::<usize>() == shape[dim],
            "`split`: sizes {sizes:?} do not add up to dim {dim} of {shape:?}"
        );
        let mut start = 0;
        let part = |size: &usize| {
            start += size;
            self.part(dim, start - size, *size)
        };
        sizes.iter().map(part).collect()
    }

    fn part(self, dim: usize, start: usize, length: usize) -> Self {
        let mut extents = self.shape();
        extents[dim] = length;
        let mut low = vec![0; extents.len()];
        low[dim] = -signed(start);
        self.window(&low, extents, 0.0)
    }

    /// Pads as PyTorch's `F.pad`: the numbers of elements before and after along the last dim, then
    /// along the one before it, and so on. `value` is the number around the tensor, and negative
    /// paddings remove elements. Or it is the name of a mode for elements of the tensor itself:
    /// `"reflect"` mirrors them at the first and the last one, `"replicate"` repeats these, and
    /// `"circular"` begins again at the other end.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 2], &[1.0, 2.0, 3.0, 4.0]);
    /// // One element before the last dim, none after it.
    /// assert_eq!(x.pad([1, 0], 9.0).to_vec(), [9.0, 1.0, 2.0, 9.0, 3.0, 4.0]);
    /// // Dim 1 as it is, and one row after dim 0.
    /// assert_eq!(x.pad([0, 0, 0, 1], 0.0).to_vec(), [1.0, 2.0, 3.0, 4.0, 0.0, 0.0]);
    /// assert_eq!(x.pad([-1, 0], 0.0).to_vec(), [2.0, 4.0]);
    /// let row = Tensor::new([3], &[1.0, 2.0, 3.0]);
    /// assert_eq!(row.pad([2, 1], "reflect").to_vec(), [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
    /// assert_eq!(row.pad([2, 1], "replicate").to_vec(), [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
    /// assert_eq!(row.pad([2, 1], "circular").to_vec(), [2.0, 3.0, 1.0, 2.0, 3.0, 1.0]);
    /// ```
    ///
    /// # Panics
    /// If there are more than two numbers for each dim or an odd number of them, or a dim becomes
    /// empty. In the modes, if a padding is negative or longer than what the dim gives.
    #[must_use]
    pub fn pad<const N: usize>(self, padding: [i64; N], value: impl PadValue) -> Self {
        value.pad(self, &padding)
    }

    /// Pads with a tensor's own elements.
    pub(super) fn surrounded(self, padding: &[i64], mode: &str) -> Self {
        let rank = self.shape().len();
        assert!(
            padding.len().is_multiple_of(2) && padding.len() <= 2 * rank,
            "`pad`: {} numbers for {rank} dims, which take at most two each",
            padding.len()
        );
        padding.chunks(2).zip((0..rank).rev()).fold(self, |x, (pair, dim)| {
            let extent = signed(x.dim(dim));
            let index = |at: i64| match mode {
                "reflect" if at < 0 => -at,
                "reflect" if at >= extent => 2 * (extent - 1) - at,
                "replicate" => at.clamp(0, extent - 1),
                "reflect" => at,
                "circular" => at.rem_euclid(extent),
                _ => panic!("`pad`: there is no mode {mode:?}"),
            };
            let most = match mode {
                "reflect" => extent - 1,
                "circular" => extent,
                _ => i64::MAX,
            };
            assert!(
                pair.iter().all(|it| (0..=most).contains(it)),
                "`pad`: dim {dim} of {extent} elements has no paddings {pair:?} in mode {mode:?}"
            );
            let parts: Vec<Self> = (-pair[0]..extent + pair[1])
                .map(|at| x.slice(dim, index(at), index(at) + 1))
                .collect();
            joined("pad", &parts, dim)
        })
    }

    pub(super) fn padded(self, padding: &[i64], value: f64) -> Self {
        let mut extents = self.shape();
        assert!(
            padding.len().is_multiple_of(2) && padding.len() <= 2 * extents.len(),
            "`pad`: {} numbers for {} dims, which take at most two each",
            padding.len(),
            extents.len()
        );
        let mut low = vec![0; extents.len()];
        for (pair, dim) in padding.chunks(2).zip((0..extents.len()).rev()) {
            let padded = usize::try_from(signed(extents[dim]) + pair[0] + pair[1]).unwrap_or(0);
            assert!(padded > 0, "`pad`: nothing is left of dim {dim} of {:?}", self.shape());
            (low[dim], extents[dim]) = (pair[0], padded);
        }
        self.window(&low, extents, value)
    }

    /// Returns a window of this shape at offset `low`, with `fill` outside the tensor.
    fn window(self, low: &[i64], shape: Vec<usize>, fill: f64) -> Self {
        let value = self.value();
        let (strides, result_strides) = (dense_strides(&value.shape), dense_strides(&shape));
        let element = |at: usize| {
            let mut offset = 0;
            for dim in 0..shape.len() {
                let index = signed(at / result_strides[dim] % shape[dim]) - low[dim];
                let index = usize::try_from(index).ok().filter(|it| *it < value.shape[dim]);
                let Some(index) = index else { return fill };
                offset += index * strides[dim];
            }
            value.data[offset]
        };
        let data = (0..shape.iter().product()).map(element).collect();
        Self::from_value(Value { shape, data }).like(self)
    }
}

/// What is around a padded tensor: a number, or the name of a mode.
pub trait PadValue {
    /// Pads a tensor.
    fn pad(self, tensor: Tensor, padding: &[i64]) -> Tensor;
}

impl PadValue for f64 {
    fn pad(self, tensor: Tensor, padding: &[i64]) -> Tensor {
        tensor.padded(padding, self)
    }
}

impl PadValue for &str {
    fn pad(self, tensor: Tensor, padding: &[i64]) -> Tensor {
        tensor.surrounded(padding, self)
    }
}

fn signed(extent: usize) -> i64 {
    i64::try_from(extent).expect("extents are far below 2^63")
}

/// Concatenates tensors along a dim, as `concat([a, b], 1)`: PyTorch's `cat`. All other extents
/// must be equal.
///
/// ```
/// use soybean::{Tensor, prelude::concat};
///
/// let (a, b) = (Tensor::new([2, 1], &[1.0, 2.0]), Tensor::new([2, 2], &[3.0, 4.0, 5.0, 6.0]));
/// let joined = concat([a, b], 1);
/// assert_eq!((joined.shape(), joined.to_vec()), (vec![2, 3], vec![1.0, 3.0, 4.0, 2.0, 5.0, 6.0]));
/// ```
///
/// # Panics
/// If there are no tensors, the dim does not exist, or another extent differs.
#[must_use]
pub fn concat(tensors: impl AsRef<[Tensor]>, dim: impl Dim) -> Tensor {
    joined("concat", tensors.as_ref(), dim)
}

/// Joins tensors of one shape along a new dim, as `stack([a, b], 0)`.
///
/// ```
/// use soybean::{Tensor, prelude::stack};
///
/// let (a, b) = (Tensor::new([3], &[1.0, 2.0, 3.0]), Tensor::new([3], &[4.0, 5.0, 6.0]));
/// assert_eq!(stack([a, b], 0).to_vec(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// assert_eq!(stack([a, b], 1).shape(), [3, 2]);
/// assert_eq!(stack([a, b], 1).to_vec(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// ```
///
/// # Panics
/// If there are no tensors, the result would have no such dim, or the shapes differ.
#[must_use]
pub fn stack(tensors: impl AsRef<[Tensor]>, dim: impl Dim) -> Tensor {
    let tensors = tensors.as_ref();
    let rank = tensors.first().map_or(0, |it| it.shape().len());
    let dim = dim.index("stack", rank + 1);
    assert!(
        tensors.iter().all(|it| it.shape() == tensors[0].shape()),
        "`stack`: the shapes of the tensors differ"
    );
    let parts: Vec<Tensor> = tensors.iter().map(|it| it.unsqueeze(dim)).collect();
    joined("stack", &parts, dim)
}

fn joined(name: &str, tensors: &[Tensor], dim: impl Dim) -> Tensor {
    let values: Vec<_> = tensors.iter().map(|it| it.value()).collect();
    assert!(!values.is_empty(), "`{name}`: at least one tensor is needed");
    let first = &values[0].shape;
    let dim = dim.index(name, first.len());
    for value in &values {
        let is_equal =
            |(other, (here, there)): (usize, (&usize, &usize))| other == dim || here == there;
        assert!(
            value.shape.len() == first.len()
                && value.shape.iter().zip(first).enumerate().all(is_equal),
            "`{name}`: shapes {first:?} and {:?} differ in more than dim {dim}",
            value.shape
        );
    }
    let mut shape = first.clone();
    shape[dim] = values.iter().map(|it| it.shape[dim]).sum();
    let n_outer: usize = shape[..dim].iter().product();
    let mut data = Vec::with_capacity(shape.iter().product());
    for outer in 0..n_outer {
        for value in &values {
            let length: usize = value.shape[dim..].iter().product();
            data.extend_from_slice(&value.data[outer * length..(outer + 1) * length]);
        }
    }
    Tensor::from_value(Value { shape, data }).like(tensors[0])
}
