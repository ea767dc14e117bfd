//! A barrier for the ranks of a group that returns an error when the run has failed.

use std::{
    hint,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    Error, ErrorKind,
    abort::{Abort, lock},
};

/// The number of spins before sleeping, if each rank has a core of its own: a few microseconds.
const N_SPINS: usize = 2000;
/// The number of yields before sleeping, if ranks share cores.
const N_YIELDS: usize = 8;

/// A reusable barrier for a fixed number of ranks.
pub(crate) struct Barrier {
    size: usize,
    is_crowded: bool,
    arrived: AtomicUsize,
    round: AtomicUsize,
    sleepers: Mutex<()>,
    wake: Condvar,
}

impl Barrier {
    /// Creates a barrier for `size` ranks. `is_crowded` is true if there are more ranks than cores.
    pub(crate) const fn new(size: usize, is_crowded: bool) -> Self {
        Self {
            size,
            is_crowded,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            sleepers: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Waits until all ranks have arrived. Their writes before the barrier are visible afterwards.
    pub(crate) fn wait(&self, abort: &Abort) -> Result<(), Error> {
        let round = self.round.load(Ordering::SeqCst);
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == self.size {
            // No rank changes the count until the round changes.
            self.arrived.store(0, Ordering::SeqCst);
            self.round.store(round.wrapping_add(1), Ordering::SeqCst);
            self.wake_all();
            return Ok(());
        }
        let is_over = || self.round.load(Ordering::SeqCst) != round;
        if self.spin(is_over) {
            return Ok(());
        }
        let mut guard = lock(&self.sleepers);
        while !is_over() {
            if abort.is_failed() {
                return Err(Error::new(ErrorKind::Rank, "another rank failed"));
            }
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Wakes all sleeping ranks, which check again whether to wait.
    pub(crate) fn wake_all(&self) {
        // While the lock is held, no rank is between its check and its sleep.
        drop(lock(&self.sleepers));
        self.wake.notify_all();
    }

    fn spin(&self, is_over: impl Fn() -> bool) -> bool {
        let (n_rounds, pause): (usize, fn()) = if self.is_crowded {
            (N_YIELDS, thread::yield_now)
        } else {
            (N_SPINS, hint::spin_loop)
        };
        (0..n_rounds).any(|_| {
            pause();
            is_over()
        })
    }
}
