//! What the processes of a run agree on, since all of them must take the same way.

use soybean_runtime::{Error, Trainer};

/// Whether something is so in any process.
pub(crate) fn any(trainer: &mut Trainer, here: bool) -> Result<bool, Error> {
    trainer.any(here)
}

/// Whether this process is the one that writes and prints.
pub(crate) fn is_first(trainer: &Trainer) -> bool {
    trainer.process().is_first()
}

/// What came of something in all processes: an error if it failed in any of them.
pub(crate) fn together<T>(trainer: &mut Trainer, outcome: Result<T, Error>) -> Result<T, Error> {
    trainer.together(outcome)
}
