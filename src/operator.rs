//! Operators of your own: a Rust function, its dims in index notation, and its gradient.
//!
//! [`#[soybean::operator]`](macro@crate::operator) makes a function for the CPU an operator, which
//! models and layers call by its name:
//!
//! ```
//! use soybean::{Tensor, operator::{Float, TensorMut, TensorRef}};
//!
//! /// The sums of absolute differences between the rows of two matrices.
//! #[soybean::operator(
//!     "bk,jk->bj",
//!     gradient = distances_gradient,
//!     cuda = "float sum = 0; for (int k = 0; k < n_k; ++k) sum += fabsf(x(b, k) - y(j, k)); return sum;",
//! )]
//! pub fn distances<F: Float>(x: TensorRef<'_, F>, y: TensorRef<'_, F>, result: TensorMut<'_, F>) {
//!     let (n_rows, width) = (y.shape[0], x.shape[1]);
//!     for (at, element) in result.data.iter_mut().enumerate() {
//!         let left = &x.data[at / n_rows * width..][..width];
//!         let right = &y.data[at % n_rows * width..][..width];
//!         *element = left.iter().zip(right).fold(F::zero(), |sum, (x, y)| sum + (*x - *y).abs());
//!     }
//! }
//!
//! // d |x - y| / dx = sign(x - y), and the same with the other sign for y.
//! #[soybean::layer]
//! fn distances_gradient(x: Tensor, y: Tensor, _result: Tensor, gradient: Tensor) -> (Tensor, Tensor) {
//!     let signs = (x.unsqueeze(1) - y.unsqueeze(0)).sign() * gradient.unsqueeze(2);
//!     (signs.sum(1), -signs.sum(0))
//! }
//!
//! #[soybean::model(gpus = 4)]
//! mod nearest {
//!     use super::distances;
//!     use soybean::prelude::*;
//!
//!     pub(crate) fn forward(x: Tensor<f32, 8, 6>, label: Tensor<i32, 8>) -> Tensor {
//!         let centers = param("centers", [4, 6], normal(1.0));
//!         (-distances(x, centers)).cross_entropy(label)
//!     }
//! }
//!
//! fn main() -> Result<(), soybean::Error> {
//!     // The function, its splits and its gradient fit together.
//!     distances::OPERATOR.check(&[&[4, 6], &[3, 6]])?;
//!     let mut trainer = nearest::Trainer::new(soybean::Config::default())?;
//!     let x: Vec<f32> = (0..8 * 6).map(|it| (it % 7) as f32).collect();
//!     let batch = nearest::Batch { x: &x, label: &[0, 1, 2, 3, 0, 1, 2, 3] };
//!     assert!(trainer.step(&batch)? > trainer.step(&batch)?);
//!     Ok(())
//! }
//! ```
//!
//! # The notation
//!
//! The notation has one letter for each dim of the operands, and of the result after `->`. Dims with
//! one letter have one extent. The letters say which splits are legal, and the search chooses among
//! them:
//!
//! - A letter of the result may be split. The function then computes a part of the result from the
//!   same parts of the operands that have the letter.
//! - A letter that the result lacks may be split, too. The results of the parts are added up, so
//!   the function must be such a sum.
//! - A capital letter is never split. A function that normalizes rows is `"bK->bK"`.
//!
//! Dims that the result lacks are never padded. Operands and result are tensors of `f32`. With
//! `precision = "bf16"` they may be stored as `bf16`, and the function still reads and writes `f32`.
//!
//! # The function
//!
//! The function is generic in the type of its numbers, since trainers call it with `f32`, and the
//! oracle of `check` with `f64`. It writes all elements of the result, which hold anything before.
//! The threads of a device split the first letter of the result if it is the first one of all
//! operands that have it. A panic ends the run with an error.
//!
//! # The gradient
//!
//! `gradient` names a layer that computes the gradients of the operands by operators. It takes the
//! operands, the result, and the gradient of the loss with respect to the result. It returns a
//! tensor for each operand, of the operand's shape. With `gradient = none`, no gradient flows
//! through the operator, as through `argmax`.
//!
//! # GPUs
//!
//! `cuda` is the body of a CUDA C function that returns one element of the result. It has the
//! element's indices by their letters (`b`, `j`) and the extents of all letters (`n_b`, `n_k`). It
//! reads an element of an operand by a call: `x(b, k)`. A program with an operator without this
//! text runs on the CPU only.

use soybean_plan::{CustomFunction, IndexNotation};
use soybean_runtime::{Error, ErrorKind};

use crate::Tensor;

mod conformance;

pub use num_traits::Float;
pub use soybean_plan::{TensorMut, TensorRef};

/// The description of an operator of one's own, `distances::OPERATOR` of the operator `distances`.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    /// Its name.
    pub name: &'static str,
    /// Its dims in index notation.
    pub notation: &'static str,
    /// The names of its operands.
    pub operands: &'static [&'static str],
    /// Its function in single precision.
    pub function: CustomFunction<f32>,
    /// Its function in double precision.
    pub function_in_f64: CustomFunction<f64>,
    /// The function that computes the gradients of the operands from these, the result, and the
    /// gradient of the result. `None` if no gradient flows through the operator.
    pub gradient: Option<fn(&[Tensor]) -> Vec<Tensor>>,
    /// The body of its function in CUDA C, if it has one.
    pub cuda: Option<&'static str>,
}

impl Operator {
    /// Computes the result on eager tensors.
    ///
    /// # Panics
    /// If the shapes of the operands do not fit the notation.
    #[must_use]
    #[expect(clippy::panic, reason = "as eager operators: wrong operands are a bug of the caller")]
    pub fn call(&self, operands: &[Tensor]) -> Tensor {
        let shapes: Vec<Vec<usize>> = operands.iter().map(|it| it.shape()).collect();
        let notation = self.notation_of(&shapes).unwrap_or_else(|error| panic!("{error}"));
        let elements: Vec<Vec<f64>> = operands.iter().map(|it| it.to_vec()).collect();
        let (shape, data) = self.compute(&notation, &shapes, &elements, self.function_in_f64);
        Tensor::new(shape, &data)
    }

    /// Checks the operator on random operands of these shapes:
    ///
    /// - the function gives the same in single and in double precision, within rounding;
    /// - the parts of each letter that may be split give the whole result;
    /// - the gradients are those of finite differences.
    ///
    /// Extents of at least 2 try more than extents of 1. All elements are distinct from zero by at
    /// least 0.1, and smaller than 2.
    ///
    /// # Errors
    /// If one of these does not hold, or the shapes do not fit the notation.
    pub fn check(&self, shapes: &[&[usize]]) -> Result<(), Error> {
        let shapes: Vec<Vec<usize>> = shapes.iter().map(|it| it.to_vec()).collect();
        conformance::check(self, &shapes)
    }

    /// Returns the parsed notation, if the shapes fit it.
    fn notation_of(&self, shapes: &[Vec<usize>]) -> Result<IndexNotation, Error> {
        let fault = |message: String| {
            Error::new(ErrorKind::Operator, format!("operator `{}`: {message}", self.name))
        };
        let notation = IndexNotation::parse(self.notation).map_err(fault)?;
        let (expected, found) = (notation.operands().len(), shapes.len());
        if expected != found {
            return Err(fault(format!("expected {expected} operands, found {found}")));
        }
        notation.check(shapes).map_err(|(operand, message)| {
            fault(format!("operand `{}` of {notation}: {message}", self.operands[operand]))
        })?;
        Ok(notation)
    }

    /// Computes the result's shape and elements by a function of the operator.
    fn compute<F: Float>(
        &self,
        notation: &IndexNotation,
        shapes: &[Vec<usize>],
        elements: &[Vec<F>],
        function: CustomFunction<F>,
    ) -> (Vec<usize>, Vec<F>) {
        let operand = |(shape, data)| TensorRef { shape, data };
        let operands: Vec<TensorRef<'_, F>> = (shapes.iter().map(Vec::as_slice))
            .zip(elements.iter().map(Vec::as_slice))
            .map(operand)
            .collect();
        let shape: Vec<usize> =
            notation.result().iter().map(|it| notation.extent(*it, shapes)).collect();
        // Elements that the function does not write stay NaN.
        let mut data = vec![F::nan(); shape.iter().product()];
        function(&operands, TensorMut { shape: &shape, data: &mut data });
        (shape, data)
    }
}
