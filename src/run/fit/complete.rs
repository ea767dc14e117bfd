//! A run from its start to its end, with the explanation of a step that failed because its loss or
//! its gradients are not finite.

use std::path::PathBuf;

use soybean_runtime::Error;

use super::{Event, FitError, Run, Summary};
use crate::non_finite::{can_explain, explained};

impl Run<'_> {
    /// Trains until the end of the run, and leaves the best weights if they are wanted.
    pub(super) fn complete(&mut self) -> Result<Summary, FitError> {
        let end = self.run().and_then(|end| self.finish().map(|()| end));
        let end = end.and_then(|end| self.best_weights.restore(self.trainer).map(|()| end));
        end.map(|end| self.summary(end)).map_err(|error| {
            let error = self.explained(error);
            self.fit_error(&error)
        })
    }

    /// Reads the batch of the failed step again, and adds the first tensor that is not finite to
    /// the error.
    fn explained(&mut self, error: Error) -> Error {
        // A step that failed is not recorded, so the end of the one before it is not pending.
        if self.progress.is_pending || !can_explain(&error, self.trainer) {
            return error;
        }
        self.notify(&Event::Note("computing the step again, to find the first non-finite tensor"));
        let batch = usize::try_from(self.progress.batch).unwrap_or(usize::MAX);
        self.train.start(self.progress.epoch, batch);
        match self.next_batch() {
            Ok(batch) => {
                explained(error, self.trainer, self.tables, self.plan.recipe, (0, &batch.views()))
            }
            Err(_) => error,
        }
    }

    /// Returns the error of the run, with the last checkpoint.
    fn fit_error(&mut self, error: &Error) -> FitError {
        let Some(checkpoints) = &mut self.checkpoints else { return error.clone().into() };
        let checkpoint = checkpoints.last_saved().map(PathBuf::from);
        let left = match &checkpoint {
            None => "no checkpoint was written before".to_owned(),
            Some(path) => format!("the last checkpoint is {}", path.display()),
        };
        FitError { error: Error::new(error.kind(), format!("{error}; {left}")), checkpoint }
    }
}
