//! How a thread waits for something that is not announced to it.

use std::{
    hint, thread,
    time::{Duration, Instant},
};

/// Number of polls before the first yield.
const N_SPINS: u32 = 100;
/// Time for which a waiting thread yields instead of sleeping.
const SHORT_WAIT: Duration = Duration::from_millis(2);
/// Pause between polls after that.
const SHORT_SLEEP: Duration = Duration::from_micros(50);
/// Time after which a wait is long.
pub(crate) const LONG_WAIT: Duration = Duration::from_secs(1);
/// Pause between polls of a long wait.
pub(crate) const LONG_SLEEP: Duration = Duration::from_millis(1);

/// Pauses between the polls of a wait: first the thread spins, then it yields its core, and finally
/// it sleeps.
#[derive(Default)]
pub(crate) struct Backoff {
    n_polls: u32,
    started: Option<Instant>,
}

impl Backoff {
    /// Pauses. Returns false while the thread only spins.
    pub(crate) fn pause(&mut self) -> bool {
        self.n_polls += 1;
        if self.n_polls < N_SPINS {
            hint::spin_loop();
            return false;
        }
        match self.started.get_or_insert_with(Instant::now).elapsed() {
            waited if waited < SHORT_WAIT => thread::yield_now(),
            waited if waited < LONG_WAIT => thread::sleep(SHORT_SLEEP),
            _ => thread::sleep(LONG_SLEEP),
        }
        true
    }

    /// Returns true after a long wait.
    #[cfg(feature = "mpi")]
    pub(crate) fn is_long(&self) -> bool {
        self.started.is_some_and(|it| it.elapsed() > LONG_WAIT)
    }
}
