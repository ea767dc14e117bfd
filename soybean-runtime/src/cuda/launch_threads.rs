//! The threads that queue steps: one for each GPU of this process.
//!
//! A call of the driver blocks while the launch queue of its GPU is full, and a call of NCCL while
//! ranks connect. So the trainer's thread makes no such calls. It watches those that do, and gives
//! up the ones that a GPU blocks for ever.

use std::{
    convert::Infallible,
    mem,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use soybean_plan::ThreadOwner;

use super::{gpu::Gpu, step_launch::StepLaunch};
use crate::{Error, ErrorKind, abort::STOPPING_TIME};

/// Time between two looks of the trainer's thread at the threads that queue.
const WATCH_INTERVAL: Duration = Duration::from_millis(1);

/// The launching threads of all GPUs. They sleep between steps.
pub(super) struct LaunchThreads {
    jobs: Vec<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    owner: ThreadOwner,
    /// Disconnected when no thread works on the last launch any longer.
    working: Option<Receiver<Infallible>>,
}

/// A thread's part of a launch.
struct Job {
    launch: Arc<StepLaunch>,
    /// Dropped when the thread has done its part.
    _working: Sender<Infallible>,
}

impl LaunchThreads {
    /// Starts the threads.
    pub(super) fn new(gpus: &[Arc<Gpu>]) -> Result<Self, Error> {
        let (mut jobs, mut threads) = (Vec::new(), Vec::new());
        for (gpu_index, gpu) in gpus.iter().enumerate() {
            let (sender, receiver) = mpsc::channel();
            let work = move || receiver.iter().for_each(|it: Job| it.launch.run(gpu_index));
            let name = format!("launches of GPU {}", gpu.ordinal);
            let thread = thread::Builder::new().name(name).spawn(work).map_err(|error| {
                Error::new(ErrorKind::Device, format!("starting a thread for {gpu:?}: {error}"))
            })?;
            jobs.push(sender);
            threads.push(thread);
        }
        Ok(Self { jobs, threads, owner: ThreadOwner::this_process(), working: None })
    }

    /// Queues a step, and calls `watch` now and then until that is done.
    ///
    /// # Errors
    /// The first error of a thread or of `watch`. Threads that a GPU blocks may then still work.
    pub(super) fn run(
        &mut self,
        launch: Arc<StepLaunch>,
        watch: impl Fn(&Arc<StepLaunch>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (sender, working) = mpsc::channel();
        for jobs in &self.jobs[..launch.n_threads()] {
            // If the thread has panicked, its part stays undone.
            let _dropped = jobs.send(Job { launch: Arc::clone(&launch), _working: sender.clone() });
        }
        drop(sender);
        self.working = Some(working);
        while !self.are_idle_within(WATCH_INTERVAL) {
            if let Err(error) = launch.progress.check().and_then(|()| watch(&launch)) {
                launch.progress.fail(error);
                self.are_idle_within(STOPPING_TIME);
                break;
            }
        }
        launch.progress.check()?;
        if launch.is_done() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Device, "expected that threads queue a step, found a panic"))
    }

    /// Waits until no thread works, at most for this time. Returns false if some still work.
    pub(super) fn are_idle_within(&mut self, limit: Duration) -> bool {
        let Some(working) = &self.working else { return true };
        match working.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                self.working = None;
                true
            }
            Ok(never) => match never {},
        }
    }
}

impl Drop for LaunchThreads {
    /// Ends the threads, but those that a GPU blocks.
    fn drop(&mut self) {
        self.jobs.clear();
        if !self.owner.is_here() {
            mem::forget(mem::take(&mut self.threads));
        } else if self.are_idle_within(Duration::ZERO) {
            for thread in mem::take(&mut self.threads) {
                let _panicked = thread.join();
            }
        }
    }
}
