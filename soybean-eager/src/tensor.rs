//! The eager tensor: construction and access.

use std::{fmt, marker::PhantomData, rc::Rc};

use super::{
    Dim,
    arena::{self, Handle, Value},
};

/// A tensor of a model's function: a small `Copy` handle.
///
/// A model's signature has its type and dims, `Tensor<f32, BATCH, 784>`; the attribute removes them
/// from the function that remains in the program. The elements are stored in double precision and
/// freed at the end of the surrounding [`scope`](super::scope).
///
/// Tensors and numbers are operands of `+ - * /` on either side. Shapes broadcast as in NumPy: dims
/// are aligned at the last one, and a missing dim or one of extent 1 is repeated.
///
/// ```
/// # use soybean::Tensor;
/// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// let (row, column) = (Tensor::new([3], &[10.0, 20.0, 30.0]), Tensor::new([2, 1], &[1.0, 2.0]));
/// assert_eq!((x + row).to_vec(), [11.0, 22.0, 33.0, 14.0, 25.0, 36.0]);
/// assert_eq!((x * column).to_vec(), [1.0, 2.0, 3.0, 8.0, 10.0, 12.0]);
/// assert_eq!((1 - x / 2).to_vec(), [0.5, 0.0, -0.5, -1.0, -1.5, -2.0]);
/// assert_eq!((-row + column).shape(), [2, 3]);
/// let mut h = row;
/// h += 1.0;
/// assert_eq!((h.to_vec(), row.to_vec()), (vec![11.0, 21.0, 31.0], vec![10.0, 20.0, 30.0]));
/// ```
#[derive(Clone, Copy)]
pub struct Tensor {
    handle: Handle,
    /// True if the elements are `i32` in a trainer.
    pub(super) is_integer: bool,
    /// The elements belong to the thread that created them.
    not_send: PhantomData<*const ()>,
}

impl Tensor {
    /// Returns the tensor with this shape and these elements in row-major order.
    ///
    /// # Panics
    /// If the number of elements is not the product of the extents.
    #[must_use]
    pub fn new(shape: impl AsRef<[usize]>, elements: &[f64]) -> Self {
        let shape = shape.as_ref();
        let n_elements: usize = shape.iter().product();
        assert!(
            n_elements == elements.len(),
            "a tensor of shape {shape:?} has {n_elements} elements, but {} were given",
            elements.len()
        );
        Self::from_value(Value { shape: shape.to_vec(), data: elements.to_vec() })
    }

    /// Returns the tensor of integers with this shape and these elements in row-major order. As in
    /// a trainer, their sums and products are modulo 2^32.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::integers([2], &[i32::MAX, -7]);
    /// assert_eq!((x * 2).to_vec(), [-2.0, -14.0]);
    /// assert_eq!(x.to_f32().sum(..).item(), 2147483640.0);
    /// ```
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn integers(shape: impl AsRef<[usize]>, elements: &[i32]) -> Self {
        let elements: Vec<f64> = elements.iter().map(|it| f64::from(*it)).collect();
        Self::new(shape, &elements).as_integers()
    }

    /// Returns a tensor without dims that holds this number.
    #[must_use]
    pub fn scalar(number: f64) -> Self {
        Self::new([], &[number])
    }

    /// Returns the extents of the dims.
    #[must_use]
    pub fn shape(self) -> Vec<usize> {
        self.value().shape.clone()
    }

    /// Returns the extent of one dim; negative numbers count from the last.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([4, 6], &[0.0; 24]);
    /// assert_eq!((x.dim(0), x.dim(1), x.dim(-1)), (4, 6, 6));
    /// ```
    ///
    /// # Panics
    /// If there is no such dim.
    #[must_use]
    pub fn dim(self, dim: impl Dim) -> usize {
        let value = self.value();
        value.shape[dim.index("dim", value.shape.len())]
    }

    /// Returns the elements in row-major order.
    #[must_use]
    pub fn to_vec(self) -> Vec<f64> {
        self.value().data.clone()
    }

    /// Returns the only element.
    ///
    /// # Panics
    /// If the number of elements is not 1.
    #[must_use]
    pub fn item(self) -> f64 {
        let value = self.value();
        assert!(value.data.len() == 1, "`item`: shape {:?} has not one element", value.shape);
        value.data[0]
    }

    pub(super) fn from_value(value: Value) -> Self {
        Self { handle: arena::insert(value), is_integer: false, not_send: PhantomData }
    }

    /// Returns the same elements as integers.
    pub(super) fn as_integers(self) -> Self {
        Self { is_integer: true, ..self }
    }

    /// Returns the same elements as numbers.
    pub(super) fn as_numbers(self) -> Self {
        Self { is_integer: false, ..self }
    }

    /// Returns the tensor as one of integers if another one is.
    pub(super) fn like(self, other: Self) -> Self {
        Self { is_integer: other.is_integer, ..self }
    }

    pub(super) fn value(self) -> Rc<Value> {
        arena::get(self.handle)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value();
        write!(f, "Tensor {:?} {:?}", value.shape, value.data)
    }
}
