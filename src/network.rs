//! The expansion of a model: its plan, its generated program and its function.

use soybean_plan::Plan;
use soybean_runtime::{Model, View};

use crate::Tensor;

/// A compiled model, implemented by `#[soybean::model]`.
pub trait Network: 'static {
    /// The plan of the build, in all its output formats.
    const PLAN: Plan;

    /// The tensors of one step or prediction: a struct with a slice for each argument of the
    /// function.
    type Batch<'a>: Batch;

    /// Returns the generated program.
    fn model() -> &'static dyn Model;

    /// Evaluates the model's own function over eager tensors; returns the loss and the other
    /// outputs, or all outputs of an inference model.
    fn forward(inputs: &[Tensor]) -> Vec<Tensor>;
}

/// The tensors of one step or prediction, in the user's order of elements.
pub trait Batch {
    /// Passes views of the tensors to `use_views`, in the order of the function's arguments.
    fn with_views<R>(&self, use_views: impl FnOnce(&[View<'_>]) -> R) -> R;
}

/// The return value of a model's function: a tensor, or a tuple of tensors.
pub trait Outputs {
    /// Returns the tensors in order.
    fn into_tensors(self) -> Vec<Tensor>;
}

impl Outputs for Tensor {
    fn into_tensors(self) -> Vec<Tensor> {
        vec![self]
    }
}

macro_rules! impl_outputs {
    ($($name:ident)*) => {
        impl Outputs for ($(impl_outputs!(@tensor $name),)*) {
            fn into_tensors(self) -> Vec<Tensor> {
                let ($($name,)*) = self;
                vec![$($name),*]
            }
        }
    };
    (@tensor $name:ident) => { Tensor };
}

impl_outputs!(a);
impl_outputs!(a b);
impl_outputs!(a b c);
impl_outputs!(a b c d);
impl_outputs!(a b c d e);
impl_outputs!(a b c d e f);
impl_outputs!(a b c d e f g);
impl_outputs!(a b c d e f g h);
