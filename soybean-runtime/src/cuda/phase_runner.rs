//! The runs of a phase: kernel by kernel at first, then as captured graphs.

use super::{
    device_set::{DeviceSet, PhaseEvents, StepLaunch},
    phase::Phase,
    stream::{Event, Graph},
    unfinished::unfinished_tasks,
};
use crate::Error;

/// A phase with its events and captured graphs.
pub(super) struct PhaseRunner {
    pub(super) phase: Phase,
    events: PhaseEvents,
    has_run: bool,
    /// True if the last step was a graph.
    ran_graph: bool,
    /// The captured step for each slot.
    graphs: [Option<Graph>; 2],
}

impl PhaseRunner {
    /// Creates the events of a phase.
    pub(super) fn new(devices: &DeviceSet, phase: Phase) -> Result<Self, Error> {
        let events = devices.events(&phase)?;
        Ok(Self { phase, events, has_run: false, ran_graph: false, graphs: [None, None] })
    }

    /// Queues a step kernel by kernel.
    pub(super) fn queue(
        &mut self,
        devices: &DeviceSet,
        launch: StepLaunch<'_>,
    ) -> Result<(), Error> {
        self.ran_graph = false;
        devices.wait_for_batch(launch.slot)?;
        devices.queue(&self.phase, &self.events, launch)
    }

    /// Describes what the last step has not finished.
    pub(super) fn unfinished(&self, devices: &DeviceSet) -> Result<String, Error> {
        match self.ran_graph {
            true => Ok("the graph of the step; without graphs its tasks are named".to_owned()),
            false => unfinished_tasks(devices, &self.phase, &self.events),
        }
    }

    /// Drops the captured graphs. A graph that is running is freed when it ends.
    pub(super) fn drop_graphs(&mut self) {
        self.graphs = [None, None];
    }

    /// Starts a step on the batch of a slot and records its end in `done`.
    ///
    /// The first step is queued kernel by kernel: libraries load kernels on first use, which a
    /// capture does not allow.
    pub(super) fn run(
        &mut self,
        devices: &DeviceSet,
        slot: usize,
        uses_graphs: bool,
        done: &Event,
    ) -> Result<(), Error> {
        let launch = StepLaunch { slot, timing: None };
        if !uses_graphs || !self.has_run {
            self.queue(devices, launch)?;
            self.has_run = true;
            return done.record(devices.origin_stream());
        }
        devices.wait_for_batch(slot)?;
        if self.graphs[slot].is_none() {
            devices.origin_stream().begin_capture()?;
            let queued = devices.queue(&self.phase, &self.events, launch);
            // The capture must end even after an error.
            let graph = devices.origin_stream().end_capture();
            queued?;
            self.graphs[slot] = Some(graph?);
        }
        self.ran_graph = true;
        if let Some(graph) = &self.graphs[slot] {
            graph.launch(devices.origin_stream())?;
        }
        done.record(devices.origin_stream())
    }
}
