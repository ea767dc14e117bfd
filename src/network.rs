//! The expansion of a model: its plan, its generated program and its function.

use soybean_plan::Plan;
use soybean_runtime::{Error, Model, View, data};

use crate::{Tensor, run::match_columns};

/// A compiled model, implemented by `#[soybean::model]`.
pub trait Network: Sized + 'static {
    /// The plan of the build, in all its output formats.
    const PLAN: Plan;

    /// The tensors of one step or prediction: a struct with a slice for each argument of the
    /// function. If the model has several entries, those of the first one.
    type Batch<'a>: Batch<Self>;

    /// Returns the generated program.
    fn model() -> &'static dyn Model;

    /// Evaluates the model's own function of this entry over eager tensors; returns the loss and
    /// the other outputs, or all outputs of an inference model.
    fn forward(entry: usize, inputs: &[Tensor]) -> Vec<Tensor>;
}

/// The tensors of one step or prediction of the model `N`, in the user's order of elements: the
/// struct `Batch` of the model's module, or the struct of another entry; a batch of a
/// [`data::DataLoader`], or its views. The columns of the latter two are the arguments of the
/// model's first entry: columns of a batch by their names, as in a run, and views in order.
pub trait Batch<N: Network> {
    /// The number of the entry that takes it.
    const ENTRY: usize = 0;

    /// Passes views of the tensors to `use_views`, in the order of the function's arguments.
    ///
    /// # Errors
    /// As `use_views`, or if the names of columns contradict those of the arguments.
    fn with_views<R>(
        &self,
        use_views: impl FnOnce(&[View<'_>]) -> Result<R, Error>,
    ) -> Result<R, Error>;
}

impl<N: Network> Batch<N> for data::Batch {
    fn with_views<R>(
        &self,
        use_views: impl FnOnce(&[View<'_>]) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let (inputs, columns, views) =
            (N::model().tables().inputs_of(0), self.columns(), self.views());
        // Most batches have the names of the inputs in order.
        let names = inputs.iter().map(|it| &*it.name);
        if names.eq(columns.iter().map(|it| it.name.as_str())) {
            return use_views(&views);
        }
        let positions = match_columns(inputs, columns);
        let positions = positions.map_err(|it| Error::data(format!("the batch: {it}")))?;
        use_views(&positions.into_iter().map(|it| views[it]).collect::<Vec<_>>())
    }
}

impl<N: Network> Batch<N> for Vec<View<'_>> {
    fn with_views<R>(
        &self,
        use_views: impl FnOnce(&[View<'_>]) -> Result<R, Error>,
    ) -> Result<R, Error> {
        use_views(self)
    }
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
