//! Tables of live objects by handle.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ffi::Handle;
use crate::state::lock;

/// All live objects of one kind.
pub(crate) struct Handles<T>(Mutex<BTreeMap<u64, T>>);

impl<T> Handles<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Adds an object and returns its handle.
    pub(crate) fn add(&self, thing: T) -> Handle {
        let number = lock().new_handle();
        self.things().insert(number, thing);
        Handle(number)
    }

    /// Removes an object. Returns `None` for an invalid handle.
    pub(crate) fn remove(&self, handle: Handle) -> Option<T> {
        self.things().remove(&handle.0)
    }

    /// Modifies an object. Returns `None` for an invalid handle.
    pub(crate) fn change<R>(&self, handle: Handle, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.things().get_mut(&handle.0).map(change)
    }

    fn things(&self) -> MutexGuard<'_, BTreeMap<u64, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Handles<T> {
    pub(crate) fn get(&self, handle: Handle) -> Option<T> {
        self.things().get(&handle.0).cloned()
    }
}
