//! What the processes of a run agree on, since all of them must take the same way.

use soybean_runtime::{Error, Trainer};

/// What came of something that all processes do: an error if it failed in any of them.
pub(crate) fn together<T>(trainer: &mut Trainer, outcome: Result<T, Error>) -> Result<T, Error> {
    match outcome {
        Ok(outcome) => trainer.any(false).map(|_| outcome),
        Err(error) => {
            // Those that ask hear of it. Whoever ends the process says it to people.
            let _ = trainer.process().fail(&error.to_string());
            Err(error)
        }
    }
}
