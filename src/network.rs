//! What a model's expansion provides: its plan, its generated program and its function.

use soybean_plan::Plan;
use soybean_runtime::{Model, View};

use crate::Tensor;

/// A compiled model. `#[soybean::model]` writes the implementation.
pub trait Network: 'static {
    /// What was decided at build time, in the forms in which it is shown.
    const PLAN: Plan;

    /// The tensors of one step or prediction: a struct with a slice for each of the function's arguments.
    type Batch<'a>: Batch;

    /// The generated program.
    fn model() -> &'static dyn Model;

    /// The model's own function over eager tensors: the loss, then the further outputs; in inference all are outputs.
    fn forward(inputs: &[Tensor]) -> Vec<Tensor>;
}

/// The tensors of one step or prediction, in the user's order of elements.
pub trait Batch {
    /// Shows them to the runtime, in the order of the function's arguments.
    fn with_views<R>(&self, use_views: impl FnOnce(&[View<'_>]) -> R) -> R;
}

/// What a model's function returns: a tensor, or a tuple of tensors.
pub trait Outputs {
    /// The tensors in order.
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
