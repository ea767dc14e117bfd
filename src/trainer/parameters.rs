//! The parameters and gradients of a trainer, by name.

use soybean_runtime::{Array, Error};

use super::Trainer;
use crate::Network;

impl<N: Network> Trainer<N> {
    /// Returns the parameters by name, in the user's order of elements.
    ///
    /// # Errors
    /// If an earlier error left the trainer unusable.
    pub fn parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.inner.parameters()
    }

    /// Returns the parameters that are trained, as [`Self::parameters`] does: neither buffers nor
    /// those that `freeze` names.
    ///
    /// # Errors
    /// If an earlier error left the trainer unusable.
    pub fn trained_parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.inner.trained_parameters()
    }

    /// Returns a parameter or buffer by name.
    ///
    /// # Errors
    /// If there is none of this name, or an earlier error left the trainer unusable.
    pub fn parameter(&mut self, name: &str) -> Result<Array, Error> {
        self.inner.parameter(name)
    }

    /// Replaces one parameter or buffer.
    ///
    /// # Errors
    /// If there is none of this name, or its shape is another one.
    pub fn set_parameter(&mut self, name: &str, value: &Array) -> Result<(), Error> {
        self.inner.set_parameter(name, value)
    }

    /// Returns the gradients of the last step by the names of parameters, if the model's optimizer
    /// is `gradients()`, and of inputs that `input_gradients = ["x"]` names. They are gradients of
    /// the loss that the step returned. If several steps share an update, they are the means of
    /// their gradients, and with `clip_norm` those of parameters are clipped.
    ///
    /// ```
    /// #[soybean::model(gpus = 2, optimizer = gradients())]
    /// fn tiny(x: Tensor<f32, 4, 8>, y: Tensor<i32, 4>) -> Tensor {
    ///     x.matmul(param("w", [8, 3], he_normal())).cross_entropy(y)
    /// }
    /// # use soybean::prelude::*;
    ///
    /// fn main() -> Result<(), soybean::Error> {
    ///     let mut trainer = tiny::Trainer::new(soybean::Config::default())?;
    ///     let batch = tiny::Batch { x: &[0.5; 32], y: &[0, 1, 2, 1] };
    ///     let first = trainer.step(&batch)?;
    ///     for (name, gradient) in trainer.gradients()? {
    ///         let mut parameter = trainer.parameter(&name)?;
    ///         for (p, g) in parameter.data.iter_mut().zip(&gradient.data) {
    ///             *p -= 0.1 * g;
    ///         }
    ///         trainer.set_parameter(&name, &parameter)?;
    ///     }
    ///     assert!(trainer.step(&batch)? < first);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// If the model keeps no gradients, or an earlier error left the trainer unusable.
    pub fn gradients(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.inner.gradients()
    }

    /// Returns one of the [gradients](Self::gradients), by the name of its parameter or input.
    ///
    /// # Errors
    /// If the model does not keep this gradient, or an earlier error left the trainer unusable.
    pub fn gradient(&mut self, name: &str) -> Result<Array, Error> {
        self.inner.gradient(name)
    }

    /// Replaces all parameters.
    ///
    /// # Errors
    /// If a name is unknown or missing, or a shape differs.
    pub fn set_parameters(&mut self, parameters: &[(String, Array)]) -> Result<(), Error> {
        self.inner.set_parameters(parameters)
    }

    /// Returns the moving averages of the trained parameters by name, corrected for their start at
    /// 0, and the buffers. Before the first update, these are the parameters themselves.
    ///
    /// # Errors
    /// If the model keeps no averages (`ema = 0.999`), or an earlier error left the trainer
    /// unusable.
    pub fn averaged_parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        self.inner.averaged_parameters()
    }
}
