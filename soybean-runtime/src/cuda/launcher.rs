//! The start and the end of steps on the GPUs of this process, as the trainer's thread sees them.

use std::{
    hint,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use super::{
    device_set::{DeviceSet, TimingEvents},
    gpu::Gpu,
    launch_threads::LaunchThreads,
    peers::Peers,
    phase_runner::PhaseRunner,
    queue_progress::QueueProgress,
    step_launch::{LaunchMode, PhaseTasks, StepLaunch},
    stream::Graph,
    unfinished::unfinished_launch,
};
use crate::{
    Error, ErrorKind,
    abort::{STOPPING_TIME, lock},
    backoff::{LONG_SLEEP, LONG_WAIT},
};

/// Time for which the host polls for the end of a step without yielding its core.
const SPIN_TIME: Duration = Duration::from_micros(500);

/// The GPUs of this process, the threads that queue steps on them, and the limit of a step.
pub(super) struct Launcher {
    /// Shared with the threads while they queue a step.
    pub(super) devices: Arc<DeviceSet>,
    threads: LaunchThreads,
    peers: Arc<dyn Peers>,
    timeout: Option<Duration>,
}

impl Launcher {
    /// Starts the threads. A step may last for `timeout`.
    pub(super) fn new(
        devices: DeviceSet,
        gpus: &[Arc<Gpu>],
        (peers, timeout): (&Arc<dyn Peers>, Option<Duration>),
    ) -> Result<Self, Error> {
        let (devices, threads) = (Arc::new(devices), LaunchThreads::new(gpus)?);
        Ok(Self { devices, threads, peers: Arc::clone(peers), timeout })
    }

    /// Returns the GPUs for changes between steps.
    pub(super) fn devices_mut(&mut self) -> Result<&mut DeviceSet, Error> {
        Arc::get_mut(&mut self.devices).ok_or_else(|| {
            let message = "expected that no step is being queued, found one that was given up";
            Error::new(ErrorKind::Device, message)
        })
    }

    /// Lets the threads queue or capture a step that began at a time. Returns the graph of a
    /// capture.
    pub(super) fn launch(
        &mut self,
        (tasks, progress): (&Arc<PhaseTasks>, &Arc<QueueProgress>),
        mode: LaunchMode,
        (slot, timing): (usize, Option<&Arc<TimingEvents>>),
        started: Instant,
    ) -> Result<Option<Graph>, Error> {
        let captured = Arc::new(Mutex::new(None));
        let launch = StepLaunch {
            devices: Arc::clone(&self.devices),
            tasks: Arc::clone(tasks),
            progress: Arc::clone(progress),
            mode,
            slot,
            timing: timing.cloned(),
            captured: Arc::clone(&captured),
        };
        let (peers, timeout) = (&self.peers, self.timeout);
        let watch = |launch: &Arc<StepLaunch>| {
            peers.check(started)?;
            check_limit(timeout, started, || Ok(unfinished_launch(launch)))
        };
        self.threads.run(Arc::new(launch), watch).map_err(|error| self.cause(error))?;
        Ok(lock(&captured).take())
    }

    /// Returns the failure that NCCL or another process reports, or the error itself.
    fn cause(&mut self, error: Error) -> Error {
        // NCCL permits the question only while no thread uses the communicators.
        if !self.threads.are_idle_within(Duration::ZERO) {
            return error;
        }
        let reported = self.devices.communicators.check();
        reported.err().map_or(error, |it| self.peers.root_cause(it))
    }

    /// Waits for the end of a step of this phase.
    pub(super) fn wait(&self, runner: &PhaseRunner) -> Result<(), Error> {
        let waiting = Instant::now();
        while !self.devices.end.is_complete()? {
            if waiting.elapsed() < SPIN_TIME {
                hint::spin_loop();
            } else {
                // If a peer is gone, the step never ends. The driver, NCCL and other processes
                // report that.
                self.devices.check()?;
                let reported = self.devices.communicators.check();
                reported.map_err(|error| self.peers.root_cause(error))?;
                self.peers.check(waiting)?;
                let unfinished = || runner.unfinished(&self.devices);
                check_limit(self.timeout, runner.started(), unfinished)?;
                if waiting.elapsed() < LONG_WAIT {
                    thread::yield_now();
                } else {
                    // One part in a thousand of what the step has taken so far, or less.
                    thread::sleep(LONG_SLEEP);
                }
            }
        }
        // The end of a step on one GPU does not imply that the others succeeded.
        self.devices.check()
    }

    /// Returns the error of a GPU in preference to one that follows from it.
    pub(super) fn fail(&mut self, error: Error) -> Error {
        if self.threads.are_idle_within(Duration::ZERO) {
            let Err(failure) = self.devices.check() else { return error };
            self.devices.abandon();
            return failure;
        }
        // A call for a GPU that blocks a thread might not return either.
        self.devices.abandon();
        error
    }

    /// Ends communication, and waits for work that uses memory which is about to be freed.
    pub(super) fn close(&mut self) {
        self.devices.communicators.close();
        self.synchronize();
    }

    /// Ends communication and other work after a failure.
    pub(super) fn abort(&mut self) {
        self.devices.communicators.abort();
        // Threads that waited for peers go on, and end.
        if self.threads.are_idle_within(STOPPING_TIME) {
            self.devices.settle();
            self.synchronize();
        }
    }

    /// Waits for all ranks. Those on lost GPUs return at once and keep their memory.
    fn synchronize(&self) {
        for context in &self.devices.contexts {
            let _refused = context.synchronize();
        }
    }
}

/// Checks that a step does not last too long.
///
/// # Errors
/// Says what is `unfinished` if it does.
fn check_limit(
    timeout: Option<Duration>,
    started: Instant,
    unfinished: impl FnOnce() -> Result<String, Error>,
) -> Result<(), Error> {
    let Some(limit) = timeout.filter(|it| started.elapsed() > *it) else { return Ok(()) };
    let unfinished = unfinished()?;
    let message =
        format!("a step: expected its end within {limit:?}, found unfinished: {unfinished}");
    Err(Error::new(ErrorKind::Device, message))
}
