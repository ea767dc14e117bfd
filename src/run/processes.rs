//! What the processes of a run agree on, since all of them must take the same way.

use soybean_runtime::{Error, Trainer};

/// Whether something is so in any process.
#[expect(clippy::unnecessary_wraps, reason = "with several processes the question can fail")]
pub(crate) const fn any(_trainer: &mut Trainer, here: bool) -> Result<bool, Error> {
    Ok(here)
}

/// Whether this process is the one that writes and prints.
pub(crate) const fn is_first(_trainer: &Trainer) -> bool {
    true
}

/// What came of something in all processes: an error if it failed in any of them.
pub(crate) fn together<T>(trainer: &mut Trainer, outcome: Result<T, Error>) -> Result<T, Error> {
    match (any(trainer, outcome.is_err())?, outcome) {
        (true, Ok(_)) => {
            let message = "expected all processes to go on, found that another one failed";
            Err(Error::new(soybean_runtime::ErrorKind::Rank, message))
        }
        (_, outcome) => outcome,
    }
}
