//! Elements by their indices along a dim.

use super::{Dim, Tensor, arena::Value, strides::dense_strides};

impl Tensor {
    /// Returns, for each index, the element with this index along a dim, and the same other
    /// indices: PyTorch's `gather`. An index out of range gives 0; a trainer rejects batches with
    /// such indices.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// let index = Tensor::new([2, 1], &[2.0, 0.0]);
    /// assert_eq!(x.gather(1, index).to_vec(), [3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// If the index has another number of dims, is longer along another dim, or is not of integers.
    #[must_use]
    pub fn gather(self, dim: impl Dim, index: Self) -> Self {
        let (value, index) = (self.value(), index.value());
        let dim = dim.index("gather", value.shape.len());
        let places = places("gather", &value.shape, dim, &index);
        let data = places.into_iter().map(|it| it.map_or(0.0, |it| value.data[it])).collect();
        Self::from_value(Value { shape: index.shape.clone(), data }).like(self)
    }

    /// Adds each element of the source at its index along a dim, and the same other indices:
    /// PyTorch's `scatter_add`. An index out of range adds nothing; a trainer rejects batches with
    /// such indices.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[1.0, 2.0, 3.0]);
    /// let (index, source) = (Tensor::new([2], &[2.0, 2.0]), Tensor::new([2], &[10.0, 20.0]));
    /// assert_eq!(x.scatter_add(0, index, source).to_vec(), [1.0, 2.0, 33.0]);
    /// ```
    ///
    /// # Panics
    /// If the index does not fit in the input or in the source, or is not of integers.
    #[must_use]
    pub fn scatter_add(self, dim: impl Dim, index: Self, source: Self) -> Self {
        let (value, index, source) = (self.value(), index.value(), source.value());
        let dim = dim.index("scatter_add", value.shape.len());
        let mut data = value.data.clone();
        let from = offsets("scatter_add", &source.shape, &index.shape);
        for (place, from) in places("scatter_add", &value.shape, dim, &index).iter().zip(from) {
            if let Some(place) = place {
                data[*place] += source.data[from];
            }
        }
        Self::from_value(Value { shape: value.shape.clone(), data }).like(self)
    }
}

/// Returns the place in a tensor of this shape that each index chooses; `None` out of range.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below")]
fn places(name: &str, shape: &[usize], dim: usize, index: &Value) -> Vec<Option<usize>> {
    let of_index = &index.shape;
    let is_within = |it: usize| it == dim || of_index[it] <= shape[it];
    assert!(
        of_index.len() == shape.len() && (0..shape.len()).all(is_within),
        "`{name}`: but for dim {dim}, the indices must be within {shape:?}, found {of_index:?}"
    );
    let strides = dense_strides(shape);
    let place = |(at, number): (usize, &f64)| {
        assert!(number.fract() == 0.0, "`{name}`: expected an integer, found {number}");
        let is_within = (0.0..shape[dim] as f64).contains(number);
        let row = is_within.then_some(*number as usize)?;
        let coordinates = coordinates(of_index, at).enumerate();
        let coordinates = coordinates.map(|(it, own)| if it == dim { row } else { own });
        Some(coordinates.zip(&strides).map(|(it, stride)| it * stride).sum())
    };
    index.data.iter().enumerate().map(place).collect()
}

/// Returns the place in a tensor of each element of its first part of this shape.
fn offsets(name: &str, shape: &[usize], part: &[usize]) -> Vec<usize> {
    let is_within = shape.len() == part.len() && part.iter().zip(shape).all(|it| it.0 <= it.1);
    assert!(is_within, "`{name}`: the source {shape:?} must have an element for each of {part:?}");
    let strides = dense_strides(shape);
    let offset = |at| coordinates(part, at).zip(&strides).map(|(it, stride)| it * stride).sum();
    (0..part.iter().product()).map(offset).collect()
}

/// Returns the indices of an element, outermost first.
fn coordinates(shape: &[usize], at: usize) -> impl Iterator<Item = usize> {
    (0..shape.len()).map(move |dim| {
        let inner: usize = shape[dim + 1..].iter().product();
        at / inner % shape[dim]
    })
}
