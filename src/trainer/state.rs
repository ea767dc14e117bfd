//! The state of a trainer in files: checkpoints, and weights with the classes that they predict.

use std::path::{Path, PathBuf};

use soybean_runtime::{
    Error,
    checkpoint::{Checkpoint, Checkpoints, Progress},
    data::Classes,
    weights::{self, Loaded, Mapping},
};

use super::Trainer;
use crate::{Network, run::Numberings};

impl<N: Network> Trainer<N> {
    /// Writes a checkpoint and returns its folder.
    ///
    /// # Errors
    /// As [`Checkpoints::save`].
    pub fn save(&mut self, to: &mut Checkpoints, progress: &Progress) -> Result<PathBuf, Error> {
        to.save(&mut self.inner, progress)
    }

    /// Copies the state, and writes it as a checkpoint while training continues.
    ///
    /// # Errors
    /// As [`Checkpoints::save_in_background`].
    pub fn save_in_background(
        &mut self,
        to: &mut Checkpoints,
        progress: &Progress,
    ) -> Result<(), Error> {
        to.save_in_background(&mut self.inner, progress)
    }

    /// Restores the parameters, the optimizer's state and the counters of a checkpoint, and returns
    /// the progress of its run. The checkpoint may be of another plan or number of devices.
    ///
    /// # Errors
    /// As [`soybean_runtime::Trainer::restore`].
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<Progress, Error> {
        let progress = self.inner.restore(checkpoint)?;
        self.numberings = Numberings::stored(&progress);
        Ok(progress)
    }

    /// Replaces parameters and buffers by those of a `.safetensors` file, an index of several
    /// files, or a checkpoint's folder.
    ///
    /// # Errors
    /// As [`weights::load`].
    pub fn load_weights(
        &mut self,
        path: impl AsRef<Path>,
        mapping: &Mapping,
    ) -> Result<Loaded, Error> {
        let path = path.as_ref();
        let loaded = weights::load(&mut self.inner, path, mapping)?;
        let progress = Checkpoint::progress_beside(path)?;
        self.numberings = progress.as_ref().map(Numberings::stored).unwrap_or_default();
        Ok(loaded)
    }

    /// Returns the classes of an input of labels in the data of the last [`fit`](Self::fit), or in
    /// the data of the checkpoint that was restored or loaded. There are none if a reader did not
    /// number them itself, as `ImageFolder` does.
    pub fn classes(&self, input: &str) -> Option<&Classes> {
        self.numberings.classes(input)
    }
}
