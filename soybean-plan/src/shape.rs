//! Element types, shapes and strides: small `Copy` values that constants can hold.

use std::{fmt, ops::Deref};

/// The maximum number of dims of a tensor.
pub const MAX_RANK: usize = 8;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// The upper half of a single precision number: 8 bits of exponent, 7 of mantissa.
    Bf16,
    /// Signed integer of 32 bits; class labels.
    I32,
}

impl DType {
    /// Returns the name: `f32`, `bf16` or `i32`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::I32 => "i32",
        }
    }

    /// Returns the size of one element in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::Bf16 => 2,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The extents of a tensor's dims, outermost first. A scalar has no dims.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: usize,
}

impl Shape {
    /// Returns the shape with these extents.
    ///
    /// # Panics
    /// Panics if there are more than [`MAX_RANK`] of them.
    #[must_use]
    pub const fn new(extents: &[usize]) -> Self {
        assert!(extents.len() <= MAX_RANK, "a tensor has at most 8 dims");
        let mut dims = [0; MAX_RANK];
        let mut dim = 0;
        while dim < extents.len() {
            dims[dim] = extents[dim];
            dim += 1;
        }
        Self { dims, rank: extents.len() }
    }

    /// Returns the number of elements, or the largest number if it overflows; 1 for a scalar.
    #[must_use]
    pub fn n_elements(&self) -> usize {
        self.iter().fold(1, |n: usize, extent| n.saturating_mul(*extent))
    }

    /// Returns the strides of a dense row-major tensor of this shape, in elements.
    #[must_use]
    pub fn dense_strides(&self) -> Strides {
        let mut strides = [0; MAX_RANK];
        let mut stride = 1;
        for dim in (0..self.rank).rev() {
            strides[dim] = stride;
            stride *= self.dims[dim];
        }
        Strides(strides)
    }

    /// Returns the coordinates of all elements, in row-major order.
    #[must_use]
    pub fn points(&self) -> Vec<Vec<usize>> {
        self.iter().fold(vec![Vec::new()], |points, &extent| {
            let extended = |point: &Vec<usize>| {
                let point = point.clone();
                (0..extent).map(move |at| point.iter().copied().chain([at]).collect())
            };
            points.iter().flat_map(extended).collect()
        })
    }

    /// Returns this shape with the extent of `dim` replaced.
    ///
    /// # Panics
    /// Panics if there is no such dim.
    #[must_use]
    pub fn with(mut self, dim: usize, extent: usize) -> Self {
        assert!(dim < self.rank, "dim {dim} of a shape of rank {}", self.rank);
        self.dims[dim] = extent;
        self
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.dims[..self.rank]
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(extents: I) -> Self {
        Self::new(&extents.into_iter().collect::<Vec<_>>())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self[..], f)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self[..], f)
    }
}

/// The distance between neighbors along each dim in a buffer, in elements. A stride of 0 repeats
/// one element along the dim. Entries past the rank of the shape are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Strides(pub [usize; MAX_RANK]);

impl Strides {
    /// Returns the strides with these steps, outermost dim first.
    ///
    /// # Panics
    /// Panics if there are more than [`MAX_RANK`] of them.
    #[must_use]
    pub const fn new(steps: &[usize]) -> Self {
        Self(Shape::new(steps).dims)
    }

    /// Returns the offset of the element with these coordinates.
    #[must_use]
    pub fn offset(&self, point: &[usize]) -> usize {
        point.iter().zip(self.0).map(|(at, stride)| at * stride).sum()
    }
}
