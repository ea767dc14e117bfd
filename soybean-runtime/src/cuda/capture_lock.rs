//! Keeps calls that concern a whole GPU out of captures.
//!
//! While a thread captures a stream, CUDA fails calls of any thread that wait for all work of that
//! GPU, and with them the capture. Libraries and the driver make such calls when handles, modules
//! and memory come and go. So they wait for the end of captures, which take milliseconds.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CAPTURES: RwLock<()> = RwLock::new(());

/// Waits until no call that concerns a whole GPU is running, and holds others back.
pub(super) fn capturing() -> RwLockWriteGuard<'static, ()> {
    CAPTURES.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no thread is capturing, and holds captures back.
pub(super) fn not_capturing() -> RwLockReadGuard<'static, ()> {
    CAPTURES.read().unwrap_or_else(PoisonError::into_inner)
}
