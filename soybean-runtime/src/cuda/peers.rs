//! Interface to the other processes of a run, for ranks on GPUs.

use std::time::Instant;

use crate::Error;

/// The other processes of a run. All processes have the same number of ranks.
pub(crate) trait Peers: Send + Sync {
    /// Returns true if there are other processes.
    fn exist(&self) -> bool;

    /// Gathers equally many bytes from all processes, in rank order. All processes call this at the
    /// same time.
    fn all_gather(&self, own: &[u8]) -> Result<Vec<u8>, Error>;

    /// Checks that the other processes still take part. This process has waited for them since the
    /// given time.
    fn check(&self, since: Instant) -> Result<(), Error>;

    /// Returns the failure of another process that caused this error, or the error itself.
    fn root_cause(&self, error: Error) -> Error;
}

/// The peers of a process that runs alone: none.
pub(crate) struct NoPeers;

impl Peers for NoPeers {
    fn exist(&self) -> bool {
        false
    }

    fn all_gather(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(own.to_vec())
    }

    fn check(&self, _since: Instant) -> Result<(), Error> {
        Ok(())
    }

    fn root_cause(&self, error: Error) -> Error {
        error
    }
}
