//! The end of a run on all ranks at once, so that no rank waits for one that will not come.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use crate::{Error, barrier::Barrier};

/// The first failure of a run, and everybody who must be woken to hear of it.
#[derive(Default)]
pub(crate) struct Abort {
    is_failed: AtomicBool,
    first: Mutex<Option<Error>>,
    barriers: Mutex<Vec<Arc<Barrier>>>,
}

impl Abort {
    /// Ends the run for this reason, unless it ended before; wakes every rank that waits.
    pub(crate) fn fail(&self, error: Error) {
        lock(&self.first).get_or_insert(error);
        self.is_failed.store(true, Ordering::SeqCst);
        for barrier in lock(&self.barriers).iter() {
            barrier.wake_all();
        }
    }

    /// Whether the run has ended.
    pub(crate) fn is_failed(&self) -> bool {
        self.is_failed.load(Ordering::SeqCst)
    }

    /// Why the run ended.
    pub(crate) fn first(&self) -> Option<Error> {
        lock(&self.first).clone()
    }

    /// Makes sure that ranks that wait at `barrier` are woken.
    pub(crate) fn watch(&self, barrier: &Arc<Barrier>) {
        lock(&self.barriers).push(Arc::clone(barrier));
    }
}

/// Locks a mutex whose data stay valid even if a thread panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
