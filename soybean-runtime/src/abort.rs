//! Ending a run on all ranks after an error, so that no rank waits for one that has stopped.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};
#[cfg(any(feature = "cuda", feature = "mpi"))]
use std::time::Duration;

use crate::{Error, barrier::Barrier};

/// Time that the threads for GPUs have to stop after an error.
#[cfg(any(feature = "cuda", feature = "mpi"))]
pub(crate) const STOPPING_TIME: Duration = Duration::from_secs(2);

/// The first error of a run, and the barriers at which ranks may wait.
#[derive(Default)]
pub(crate) struct Abort {
    is_failed: AtomicBool,
    first: Mutex<Option<Error>>,
    barriers: Mutex<Vec<Arc<Barrier>>>,
}

impl Abort {
    /// Ends the run with this error, unless it ended before, and wakes all ranks that wait.
    pub(crate) fn fail(&self, error: Error) {
        lock(&self.first).get_or_insert(error);
        self.is_failed.store(true, Ordering::SeqCst);
        for barrier in lock(&self.barriers).iter() {
            barrier.wake_all();
        }
    }

    /// Returns true if the run has ended with an error.
    pub(crate) fn is_failed(&self) -> bool {
        self.is_failed.load(Ordering::SeqCst)
    }

    /// Returns the error that ended the run.
    pub(crate) fn first(&self) -> Option<Error> {
        lock(&self.first).clone()
    }

    /// Registers a barrier whose waiting ranks are woken after an error.
    pub(crate) fn watch(&self, barrier: &Arc<Barrier>) {
        lock(&self.barriers).push(Arc::clone(barrier));
    }
}

/// Locks a mutex whose data stay valid even if a thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
