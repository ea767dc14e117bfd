//! The other processes, as ranks on GPUs know them.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    calls::Channel,
    control::REASONS_TAKE,
    course::Course,
    world::{LONG, Watch, World},
};
use crate::{Error, abort::Abort, cuda::others::Others};

/// The other processes of a trainer.
pub(super) struct Neighbours {
    pub(super) world: &'static World,
    pub(super) channel: Channel,
    pub(super) course: Arc<Course>,
    pub(super) abort: Arc<Abort>,
}

impl Neighbours {
    fn watch(&self) -> Watch<'_> {
        Watch { abort: &self.abort, course: &self.course }
    }
}

impl Others for Neighbours {
    fn are_there(&self) -> bool {
        true
    }

    fn hand_round(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        self.world.hand_round(self.channel, own, self.watch())
    }

    fn check(&self, since: Instant) -> Result<(), Error> {
        self.abort.first().map_or(Ok(()), Err)?;
        self.world.look(self.watch(), since.elapsed() > LONG)
    }

    fn reason(&self, error: Error) -> Error {
        let started = Instant::now();
        while started.elapsed() < REASONS_TAKE {
            if let Err(reason) = self.check(Instant::now()) {
                return reason;
            }
            thread::sleep(Duration::from_millis(1));
        }
        error
    }
}
