//! The other processes of a run, as the ranks of this one on GPUs know them.

use std::time::Instant;

use crate::Error;

/// What ranks on GPUs need of the other processes, all of which have as many ranks.
pub(crate) trait Others: Send + Sync {
    /// Whether there are any.
    fn are_there(&self) -> bool;

    /// Gives what all processes have, one after another; each has as many bytes. All of them ask at the same time.
    fn hand_round(&self, own: &[u8]) -> Result<Vec<u8>, Error>;

    /// Whether it makes sense to go on waiting for them, as this process has done since then.
    fn check(&self, since: Instant) -> Result<(), Error>;

    /// What to say of a failure here that may come of theirs.
    fn reason(&self, error: Error) -> Error;
}

/// What a process that is alone knows of others.
pub(crate) struct Nobody;

impl Others for Nobody {
    fn are_there(&self) -> bool {
        false
    }

    fn hand_round(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(own.to_vec())
    }

    fn check(&self, _since: Instant) -> Result<(), Error> {
        Ok(())
    }

    fn reason(&self, error: Error) -> Error {
        error
    }
}
