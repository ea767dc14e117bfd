//! How far the threads have queued a step.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Error, abort::Abort, backoff::Backoff};

/// Progress of the threads of all GPUs, and the first error of any of them.
#[derive(Default)]
pub(super) struct QueueProgress {
    /// Number of queued tasks by GPU; one more after the end of the step.
    n_queued: Vec<AtomicUsize>,
    abort: Abort,
}

impl QueueProgress {
    /// Returns the progress of a step that these many threads queue.
    pub(super) fn new(n_gpus: usize) -> Self {
        let n_queued = (0..n_gpus).map(|_| AtomicUsize::new(0)).collect();
        Self { n_queued, abort: Abort::default() }
    }

    /// Tells the other threads that a thread has queued this many tasks.
    pub(super) fn set(&self, gpu_index: usize, n_queued: usize) {
        self.n_queued[gpu_index].store(n_queued, Ordering::Release);
    }

    /// Returns the number of tasks that a thread has queued.
    pub(super) fn n_queued(&self, gpu_index: usize) -> usize {
        self.n_queued[gpu_index].load(Ordering::Acquire)
    }

    /// Waits until a thread has queued a task.
    ///
    /// # Errors
    /// The error that ended the launch.
    pub(super) fn wait_for(&self, gpu_index: usize, task: usize) -> Result<(), Error> {
        let mut backoff = Backoff::default();
        while self.n_queued(gpu_index) <= task {
            self.check()?;
            backoff.pause();
        }
        Ok(())
    }

    /// Ends the launch with this error, unless it has ended before.
    pub(super) fn fail(&self, error: Error) {
        self.abort.fail(error);
    }

    /// Returns the error that ended the launch, if there is one.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.abort.is_failed() { self.abort.first().map_or(Ok(()), Err) } else { Ok(()) }
    }
}
