//! A barrier among the ranks of a group that gives up when the run has failed.

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

/// How long to look before sleeping, where every rank has a core to itself: a few microseconds.
const N_SPINS: usize = 2000;
/// How often to let other ranks run before sleeping, where ranks share cores.
const N_YIELDS: usize = 8;

/// Lets its ranks go when all of them have arrived.
pub(crate) struct Barrier {
    size: usize,
    is_crowded: bool,
    arrived: AtomicUsize,
    round: AtomicUsize,
    sleepers: Mutex<()>,
    wake: Condvar,
}

impl Barrier {
    /// A barrier for `size` ranks; `is_crowded` if there are more ranks than cores.
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

    /// Waits for the others; what they wrote before they arrived is visible afterwards.
    pub(crate) fn wait(&self, abort: &Abort) -> Result<(), Error> {
        let round = self.round.load(Ordering::SeqCst);
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == self.size {
            // Nobody touches the count until the round changes.
            self.arrived.store(0, Ordering::SeqCst);
            self.round.store(round.wrapping_add(1), Ordering::SeqCst);
            self.wake_all();
            return Ok(());
        }
        let is_over = || self.round.load(Ordering::SeqCst) != round;
        if self.look(is_over) {
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

    /// Wakes everybody who sleeps, to look again.
    pub(crate) fn wake_all(&self) {
        // Taking the lock makes sure that nobody is between looking and falling asleep.
        drop(lock(&self.sleepers));
        self.wake.notify_all();
    }

    fn look(&self, is_over: impl Fn() -> bool) -> bool {
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
