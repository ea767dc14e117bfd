//! The end of communicators: after their work, or before it if ranks have failed.
#![expect(unsafe_code, reason = "NCCL is a C library")]

use std::{
    ffi::c_void,
    ptr,
    sync::{
        atomic::{AtomicPtr, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use super::{CommunicatorGroup, combined_result, restore_context};
use crate::Error;

/// Time limit for `ncclCommFinalize`.
const FINALIZE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for `ncclCommAbort`.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

impl CommunicatorGroup {
    /// Finalizes and destroys the communicators after their work is complete. Communicators that do
    /// not work are left for `drop`, which aborts them.
    pub(crate) fn close(&self) {
        let has_failed = self.has_failed.load(Ordering::Relaxed);
        if has_failed || self.check().is_err() || self.finalize().is_err() {
            return;
        }
        for communicator in self.take() {
            // SAFETY: created in `new`; whatever NCCL returns, it is not used again.
            let _refused = unsafe { (self.nccl.destroy)(communicator.into_inner()) };
        }
        // If the context cannot be made current, there is nothing left to do.
        let _refused = restore_context(&self.gpus);
    }

    /// Aborts the communicators that are left. Without that they would wait for peers that have
    /// failed.
    ///
    /// NCCL may wait here for a GPU that no longer responds, so a thread makes the calls, and is
    /// left behind after a while. Another thread uses a communicator then only if it is blocked in
    /// NCCL or the driver, from where the abort may free it.
    pub(crate) fn abort(&self) {
        let (nccl, left) = (self.nccl, self.take());
        if left.is_empty() {
            return;
        }
        let (sender, receiver) = mpsc::channel();
        let abort = move || {
            for communicator in left {
                // SAFETY: created in `new`; whatever NCCL returns, it is not used again.
                let _refused = unsafe { (nccl.abort)(communicator.into_inner()) };
            }
            // Nobody waits any longer if it took too long.
            let _late = sender.send(());
        };
        if thread::Builder::new().name("abort NCCL".to_owned()).spawn(abort).is_ok() {
            let _late = receiver.recv_timeout(ABORT_TIMEOUT);
        }
    }

    /// Removes the communicators that are initialized or being initialized.
    fn take(&self) -> Vec<AtomicPtr<c_void>> {
        let taken = self.communicators.iter().map(|it| it.swap(ptr::null_mut(), Ordering::AcqRel));
        taken.filter(|it| !it.is_null()).map(AtomicPtr::new).collect()
    }

    /// Finalizes the communicators, possibly together with other processes.
    fn finalize(&self) -> Result<(), Error> {
        let Some(calls) = self.nccl.non_blocking else { return Ok(()) };
        let (what, all) = ("the end of communication", 0..self.gpus.len());
        // In one group, since the ranks of a machine may wait for each other.
        self.start_group(what)?;
        let communicators = self.communicators(all.clone());
        // SAFETY: the communicator is valid.
        let started = communicators.map(|(_, it)| unsafe { (calls.finalize)(it) });
        let results = [combined_result(started), self.end_group()].into_iter();
        self.check_results((what, all), results, &self.peers_within(what, Some(FINALIZE_TIMEOUT)))
    }
}

impl Drop for CommunicatorGroup {
    fn drop(&mut self) {
        self.abort();
    }
}
