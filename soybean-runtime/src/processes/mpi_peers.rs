//! The other processes, for ranks on GPUs.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    inbox::REASON_TIMEOUT,
    mpi_communicator::MpiCommunicator,
    progress::Progress,
    world::{WaitContext, World},
};
use crate::{Error, abort::Abort, backoff::LONG_WAIT, cuda::peers::Peers};

/// The other processes of a trainer.
pub(super) struct MpiPeers {
    pub(super) world: &'static World,
    pub(super) communicator: MpiCommunicator,
    pub(super) progress: Arc<Progress>,
    pub(super) abort: Arc<Abort>,
}

impl MpiPeers {
    fn context(&self) -> WaitContext<'_> {
        WaitContext { abort: &self.abort, progress: &self.progress }
    }
}

impl Peers for MpiPeers {
    fn exist(&self) -> bool {
        true
    }

    fn all_gather(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        self.world.all_gather(self.communicator, own, self.context())
    }

    fn check(&self, since: Instant) -> Result<(), Error> {
        self.abort.first().map_or(Ok(()), Err)?;
        self.world.poll(self.context(), since.elapsed() > LONG_WAIT)
    }

    fn root_cause(&self, error: Error) -> Error {
        let started = Instant::now();
        while started.elapsed() < REASON_TIMEOUT {
            if let Err(reason) = self.check(Instant::now()) {
                return reason;
            }
            thread::sleep(Duration::from_millis(1));
        }
        error
    }
}
