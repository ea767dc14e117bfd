//! Restoring the state of a run from a checkpoint.

use std::collections::BTreeMap;

use crate::{
    Checkpoint, Error, Progress, TrainingState, checkpoint::TensorFile, compatibility,
    tensor_file::Reader,
};

impl Checkpoint {
    /// Replaces the tensors and the counters of a state by those of the checkpoint. Returns the
    /// progress of the run that wrote it.
    ///
    /// # Errors
    /// - If the checkpoint is of another model or optimizer. Then the state is unchanged.
    /// - If a file has changed since the checkpoint was opened, or a device fails. Then the state
    ///   cannot be used any more.
    ///
    /// If one of several processes fails, all of them fail, and none of their states can be used.
    /// All must have opened the same checkpoint, by its name and its checksum.
    pub fn restore(&self, state: &mut impl TrainingState) -> Result<Progress, Error> {
        state.agree("checkpoint", &self.identity())?;
        let restored = self.restore_locally(state);
        state.together(restored)
    }

    fn restore_locally(&self, state: &mut impl TrainingState) -> Result<Progress, Error> {
        let spec = state.spec();
        compatibility::check(&spec, self)?;
        let numbered = spec.parameters.iter().chain(&spec.optimizer).zip(0..);
        let numbers: Vec<(&str, usize)> =
            numbered.map(|(it, number)| (it.name.as_str(), number)).collect();
        let (parameters, optimizer) = numbers.split_at(spec.parameters.len());
        for (files, numbers) in
            [(&self.model_files, parameters), (&self.optimizer_files, optimizer)]
        {
            let numbers: BTreeMap<&str, usize> = numbers.iter().copied().collect();
            for file in files {
                restore_file(state, file, &numbers).map_err(|error| state.invalidate(error))?;
            }
        }
        state.set_counters(self.counters());
        Ok(self.progress().clone())
    }
}

fn restore_file(
    state: &mut impl TrainingState,
    file: &TensorFile,
    numbers: &BTreeMap<&str, usize>,
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
        state.load_tensor(numbers[expected.name.as_str()], &data)?;
    }
    file.sum.check(path, reader.sum())
}
