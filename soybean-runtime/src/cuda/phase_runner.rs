//! The runs of a phase: kernel by kernel at first, then as captured graphs.

use std::{sync::Arc, time::Instant};

use super::{
    device_set::{DeviceSet, TimingEvents},
    launcher::Launcher,
    phase::Phase,
    queue_progress::QueueProgress,
    step_launch::{LaunchMode, PhaseTasks},
    stream::Graph,
    unfinished::unfinished_tasks,
};
use crate::Error;

/// A phase with its events and captured graphs.
pub(super) struct PhaseRunner {
    tasks: Arc<PhaseTasks>,
    has_run: bool,
    /// Start of the last step.
    started: Instant,
    /// Progress of the last step, unless it was a graph.
    progress: Option<Arc<QueueProgress>>,
    /// The captured step for each slot.
    graphs: [Option<Graph>; 2],
}

impl PhaseRunner {
    /// Creates the events of a phase.
    pub(super) fn new(devices: &DeviceSet, phase: Phase) -> Result<Self, Error> {
        let events = devices.events(&phase)?;
        let (tasks, started) = (Arc::new(PhaseTasks { phase, events }), Instant::now());
        Ok(Self { tasks, has_run: false, started, progress: None, graphs: [None, None] })
    }

    /// Returns the phase.
    pub(super) fn phase(&self) -> &Phase {
        &self.tasks.phase
    }

    /// Returns the start of the last step.
    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// Describes what the last step has not finished. All its tasks are queued.
    pub(super) fn unfinished(&self, devices: &DeviceSet) -> Result<String, Error> {
        match &self.progress {
            None => Ok("the graph of the step; without graphs its tasks are named".to_owned()),
            Some(progress) => unfinished_tasks(devices, &self.tasks, progress),
        }
    }

    /// Drops the captured graphs. A graph that is running is freed when it ends.
    pub(super) fn drop_graphs(&mut self) {
        self.graphs = [None, None];
    }

    /// Starts a step on the batch of a slot, and queues its end.
    ///
    /// The first step is queued kernel by kernel: libraries load kernels on first use, which a
    /// capture does not allow.
    pub(super) fn run(
        &mut self,
        launcher: &mut Launcher,
        slot: usize,
        uses_graphs: bool,
    ) -> Result<(), Error> {
        if !uses_graphs || !self.has_run {
            self.queue(launcher, slot, None)?;
            self.has_run = true;
            return Ok(());
        }
        if self.graphs[slot].is_none() {
            self.graphs[slot] = self.launch(launcher, LaunchMode::Capture, (slot, None))?;
        }
        (self.started, self.progress) = (Instant::now(), None);
        let devices = &launcher.devices;
        devices.wait_for_batch(slot)?;
        if let Some(graph) = &self.graphs[slot] {
            graph.launch(devices.origin_stream())?;
        }
        devices.end.record(devices.origin_stream())
    }

    /// Queues a step kernel by kernel, and then its end.
    pub(super) fn queue(
        &mut self,
        launcher: &mut Launcher,
        slot: usize,
        timing: Option<&Arc<TimingEvents>>,
    ) -> Result<(), Error> {
        // These calls cannot block: no work is queued when a step starts.
        let devices = &launcher.devices;
        devices.wait_for_batch(slot)?;
        devices.start.record(devices.origin_stream())?;
        self.launch(launcher, LaunchMode::Queue, (slot, timing)).map(|_| ())
    }

    fn launch(
        &mut self,
        launcher: &mut Launcher,
        mode: LaunchMode,
        step: (usize, Option<&Arc<TimingEvents>>),
    ) -> Result<Option<Graph>, Error> {
        let progress = Arc::new(QueueProgress::new(launcher.devices.n_gpus()));
        self.started = Instant::now();
        self.progress = Some(Arc::clone(&progress));
        launcher.launch((&self.tasks, &progress), mode, step, self.started)
    }
}
