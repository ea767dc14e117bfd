//! A state in memory that stands in for a trainer.

use std::{any::Any, fs, path::PathBuf};

use soybean_checkpoint::{Array, Counters, Error, StateSpec, TensorSpec, TrainingState};

/// A state whose tensors are all in memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MemoryState {
    pub(crate) parameters: Vec<(String, Array)>,
    pub(crate) optimizer: Vec<(String, Array)>,
    pub(crate) counters: Counters,
    /// True after a call of [`TrainingState::invalidate`].
    pub(crate) is_invalid: bool,
}

/// Returns a named tensor with the elements `start`, `start + 1` and so on.
pub(crate) fn tensor(name: &str, shape: &[usize], start: u16) -> (String, Array) {
    let n_elements: u16 = shape.iter().product::<usize>().try_into().unwrap();
    let data = (start..start + n_elements).map(f32::from).collect();
    (name.to_owned(), Array { shape: shape.to_vec(), data, ..Array::default() })
}

/// Returns an empty folder for a test of this name.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("soybean-checkpoint").join(name);
    let _may_not_exist = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

impl MemoryState {
    /// Returns the state of a linear model and its momentum, with elements from `start` on.
    pub(crate) fn linear(start: u16) -> Self {
        Self {
            parameters: vec![tensor("w", &[2, 3], start), tensor("b", &[3], start + 10)],
            optimizer: vec![
                tensor("w.momentum", &[2, 3], start + 20),
                tensor("b.momentum", &[3], start + 30),
            ],
            counters: Counters::default(),
            is_invalid: false,
        }
    }
}

impl TrainingState for MemoryState {
    fn spec(&self) -> StateSpec {
        let spec = |it: &(String, Array)| TensorSpec {
            name: it.0.clone(),
            shape: it.1.shape.clone(),
            n_terms: 1,
            use_hash: it.1.use_hash,
        };
        StateSpec {
            model: "linear".to_owned(),
            parameters: self.parameters.iter().map(spec).collect(),
            optimizer: self.optimizer.iter().map(spec).collect(),
            accumulate: 1,
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn set_counters(&mut self, counters: Counters) {
        self.counters = counters;
    }

    fn for_each_tensor(
        &mut self,
        _spare: &mut dyn FnMut() -> Option<Vec<f32>>,
        take: &mut dyn FnMut(Array) -> bool,
    ) -> Result<(), Error> {
        let mut tensors = self.parameters.iter().chain(&self.optimizer);
        let _stopped_early = tensors.all(|it| take(it.1.clone()));
        Ok(())
    }

    fn hand_out_tensors(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn load_tensor(&mut self, number: usize, elements: &[f32]) -> Result<(), Error> {
        let tensor = self.parameters.iter_mut().chain(&mut self.optimizer).nth(number).unwrap();
        tensor.1.data.copy_from_slice(elements);
        Ok(())
    }

    fn is_first_process(&self) -> bool {
        true
    }

    fn together<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        outcome
    }

    fn agree(&mut self, _what: &str, _text: &str) -> Result<(), Error> {
        Ok(())
    }

    fn invalidate(&mut self, error: Error) -> Error {
        self.is_invalid = true;
        error
    }

    fn write_guard(&self) -> Box<dyn Any + Send> {
        Box::new(())
    }
}
