//! The runs of a phase: kernel by kernel at first, then as captured graphs.

use super::{
    device_set::{DeviceSet, PhaseEvents, StepLaunch},
    phase::Phase,
    stream::{Event, Graph},
};
use crate::Error;

/// A phase with its events and captured graphs.
pub(super) struct PhaseRunner {
    pub(super) phase: Phase,
    events: PhaseEvents,
    has_run: bool,
    /// The captured step for each slot.
    graphs: [Option<Graph>; 2],
}

impl PhaseRunner {
    /// Creates the events of a phase.
    pub(super) fn new(devices: &DeviceSet, phase: Phase) -> Result<Self, Error> {
        let events = devices.events(&phase)?;
        Ok(Self { phase, events, has_run: false, graphs: [None, None] })
    }

    /// Queues a step kernel by kernel.
    pub(super) fn queue(&self, devices: &DeviceSet, launch: StepLaunch<'_>) -> Result<(), Error> {
        devices.wait_for_batch(launch.slot)?;
        devices.queue(&self.phase, &self.events, launch)
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
        if let Some(graph) = &self.graphs[slot] {
            graph.launch(devices.origin_stream())?;
        }
        done.record(devices.origin_stream())
    }
}
