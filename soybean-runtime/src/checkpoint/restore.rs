//! A trainer that takes the state of a checkpoint.

use std::collections::BTreeMap;

use super::{Checkpoint, Progress, fit, open::TensorFile};
use crate::{Error, Trainer, View, state::Stretch, tensor_file::Reader};

impl Trainer {
    /// Takes the parameters, the optimiser's state and the counters of a checkpoint, and gives how far its run had come. Plan, strategy and number of devices may be
    /// others than those of the run that wrote it; where the plan is the same, all that follows is the same bit for bit, given the same [`crate::Config::seed`] and
    /// learning rates.
    ///
    /// # Errors
    /// If the checkpoint is of another model or optimizer, in which case the trainer is as it was; or if a file has changed since the checkpoint was opened, or a rank
    /// fails, after which the trainer cannot be used. Of several processes all fail where one does, and none of their trainers can be used.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Progress, Error> {
        let restored = self.restore_here(checkpoint);
        self.together(restored)
    }

    fn restore_here(&mut self, checkpoint: &Checkpoint) -> Result<Progress, Error> {
        fit::check(self.tables(), checkpoint)?;
        let parameters = Stretch::parameters(self.tables());
        let states = Stretch::states(self.tables());
        let Checkpoint { model_files, optimizer_files, .. } = checkpoint;
        for (files, stretch) in [(model_files, parameters), (optimizer_files, states)] {
            let tensors = stretch.tensors(self.tables()).enumerate();
            let numbers: BTreeMap<String, usize> =
                tensors.map(|(at, it)| (it.name.to_owned(), stretch.first + at)).collect();
            for file in files {
                self.restore_file(file, &numbers).map_err(|error| self.give_up(error))?;
            }
        }
        self.set_counters(checkpoint.counters());
        Ok(checkpoint.progress().clone())
    }

    fn restore_file(
        &mut self,
        file: &TensorFile,
        numbers: &BTreeMap<String, usize>,
    ) -> Result<(), Error> {
        let path = &file.path;
        let mut reader = Reader::open(path)?;
        let mut data = Vec::new();
        for expected in &file.entries {
            data.clear();
            data.reserve(expected.n_elements());
            reader.next_as(expected, &mut |bytes| {
                data.extend(bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)));
            })?;
            self.load(numbers[&expected.name], &[View::F32(&data)])?;
        }
        file.sum.check(path, reader.sum())
    }
}
