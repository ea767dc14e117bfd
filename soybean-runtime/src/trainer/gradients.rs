//! Gradients for the host, and parameters one by one, for a loop of the caller's own.

use soybean_plan::Parameter;

use super::Trainer;
use crate::{Array, Error, ErrorKind, View, state::TensorRange};

impl Trainer {
    /// Returns the gradients that the last update left, by the names of their parameters and
    /// inputs. They are zero before the first update.
    ///
    /// # Errors
    /// If the model keeps no gradients, or a rank fails.
    pub fn gradients(&mut self) -> Result<Vec<(String, Array)>, Error> {
        let kept = self.tables().kept_gradients();
        let kept: Vec<(String, usize)> = kept.map(|it| (it.0.to_owned(), it.1)).collect();
        if kept.is_empty() {
            return Err(self.report_error(none_kept()));
        }
        let first = self.tables().parameters.len();
        let gradient = |(name, number)| Ok((name, self.one(first + number)?));
        kept.into_iter().map(gradient).collect()
    }

    /// Returns one of [`Self::gradients`].
    ///
    /// # Errors
    /// If the model does not keep this gradient, or a rank fails.
    pub fn gradient(&mut self, name: &str) -> Result<Array, Error> {
        let tables = self.tables();
        let kept = tables.kept_gradients().find(|it| it.0 == name).map(|it| it.1);
        if let Some(number) = kept {
            let number = tables.parameters.len() + number;
            return self.one(number);
        }
        let names = tables.kept_gradients().map(|it| it.0).collect::<Vec<_>>().join(", ");
        let error = match names.is_empty() {
            true => none_kept(),
            false => {
                let message = format!("expected a gradient of {names}, found `{name}`");
                Error::new(ErrorKind::Parameters, message)
            }
        };
        Err(self.report_error(error))
    }

    /// Returns a parameter or buffer by name.
    ///
    /// # Errors
    /// If there is none of this name, or a rank fails.
    pub fn parameter(&mut self, name: &str) -> Result<Array, Error> {
        let number = self.number_of(name)?;
        self.one(number)
    }

    /// Replaces one parameter or buffer. The optimizer's state does not change.
    ///
    /// # Errors
    /// If there is none of this name, its shape is another one, or a rank fails.
    pub fn set_parameter(&mut self, name: &str, value: &Array) -> Result<(), Error> {
        let number = self.number_of(name)?;
        let shape = self.tables().parameters[number].tile.shape;
        let (found, n_elements) = (&value.shape, value.data.len());
        if value.shape != shape[..] || n_elements != shape.n_elements() {
            let message = format!(
                "parameter `{name}`: expected shape {shape}, found {found:?} with {n_elements} elements"
            );
            return Err(self.report_error(Error::new(ErrorKind::Parameters, message)));
        }
        self.load(number, &[View::F32(&value.data)])
    }

    fn number_of(&mut self, name: &str) -> Result<usize, Error> {
        let named = |it: &Parameter| it.name == name;
        if let Some(number) = self.tables().parameters.iter().position(named) {
            return Ok(number);
        }
        let names = self.tables().parameters.iter().map(|it| it.name.as_ref());
        let names = names.collect::<Vec<&str>>().join(", ");
        let message = format!("expected one of the parameters {names}, found `{name}`");
        Err(self.report_error(Error::new(ErrorKind::Parameters, message)))
    }

    /// Fetches one tensor of the state.
    fn one(&mut self, number: usize) -> Result<Array, Error> {
        let mut tensors = self.fetch(TensorRange { first: number, n_tensors: 1 })?;
        Ok(tensors.pop().expect("one tensor was fetched"))
    }
}

fn none_kept() -> Error {
    let message = "expected a model that keeps gradients, by `optimizer = gradients()` or `input_gradients = [\"x\"]`, found none";
    Error::new(ErrorKind::Parameters, message)
}
