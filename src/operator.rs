//! Operators of your own: a Rust function, its dims in index notation, and its gradient.
//!
//! [`#[soybean::operator]`](macro@crate::operator) makes a function for the CPU an operator, which
//! models and layers call by its name. The page `docs/custom-operators.md` describes the notation,
//! the gradient, and the text for GPUs.
//!
//! ```
//! use soybean::operator::{Float, TensorMut, TensorRef};
//! use soybean::prelude::*;
//!
//! /// Each number over one plus its size.
//! #[soybean::operator("bk->bk", gradient = squash_gradient)]
//! pub fn squash<F: Float>(x: TensorRef<'_, F>, result: TensorMut<'_, F>) {
//!     for (result, x) in result.data.iter_mut().zip(x.data) {
//!         *result = *x / (F::one() + x.abs());
//!     }
//! }
//!
//! // d x / (1 + |x|) = (1 + |x|)^-2 dx
//! #[soybean::layer]
//! fn squash_gradient(x: Tensor, _result: Tensor, gradient: Tensor) -> Tensor {
//!     gradient / (1.0 + x.abs()).square()
//! }
//!
//! #[soybean::model(gpus = 2)]
//! fn model(x: Tensor<f32, 8, 6>, y: Tensor<f32, 8, 4>) -> Tensor {
//!     squash(x.matmul(param("w", [6, 4], he_normal()))).mse(y)
//! }
//!
//! squash::OPERATOR.check(&[&[4, 6]])?;
//! let mut trainer = model::Trainer::new(soybean::Config::default())?;
//! let batch = model::Batch { x: &[0.5; 8 * 6], y: &[0.25; 8 * 4] };
//! assert!(trainer.step(&batch)? > trainer.step(&batch)?);
//! # Ok::<(), soybean::Error>(())
//! ```

use soybean_plan::{CustomFunction, IndexNotation};
use soybean_runtime::{Error, ErrorKind};

use crate::Tensor;

mod conformance;

pub use num_traits::Float;
pub use soybean_plan::{TensorMut, TensorRef};

/// The function of a gradient. It takes the operands, the result and the result's gradient, and
/// returns the gradients of the operands.
pub type GradientFunction = fn(&[Tensor]) -> Vec<Tensor>;

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
    /// Its gradient; `None` if no gradient flows through it.
    pub gradient: Option<GradientFunction>,
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
