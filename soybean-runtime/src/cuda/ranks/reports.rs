//! Reports of the ranks of this process after a command.
#![expect(unsafe_code, reason = "the device writes pinned host memory")]

use soybean_plan::{BufferId, Tile};

use super::CudaRanks;
use crate::{
    Error,
    abort::lock,
    cuda::{
        device_set::{TimingEvents, TrainingStep, scalars_for_host},
        memory::PinnedWords,
        phase::{Phase, TaskLabel, first_non_finite},
        phase_runner::PhaseRunner,
    },
    trace::Span,
};

impl CudaRanks {
    /// Reports the loss and the norm of the gradients of a step.
    pub(super) fn report_numbers(&self, entry: usize, kind: TrainingStep) {
        let reported = scalars_for_host(self.launcher.devices.model.get().tables(), entry, kind);
        let number = |(_, word): &(BufferId, PinnedWords)| {
            // SAFETY: the step has ended, so no device writes the word.
            let word = unsafe { word.words() }.first().copied();
            word.map_or(f32::NAN, f32::from_bits)
        };
        let scalars = self.launcher.devices.host_scalars.iter();
        let mut numbers = scalars.filter(|it| reported.contains(&it.0)).map(number);
        // Rank 0 has the scalars, in whichever process it runs.
        let Some(report) = self.local.ranks.contains(&0).then(|| &self.local.reports[0]) else {
            return;
        };
        let mut report = lock(report);
        report.loss = numbers.next().unwrap_or(f32::NAN);
        report.gradient_norm = numbers.next();
    }

    /// Reports the first tensor of each rank whose next value was not finite in a step.
    pub(super) fn report_non_finite(&mut self) -> Result<(), Error> {
        let model = self.launcher.devices.model.clone();
        for (context, report) in
            self.launcher.devices.contexts.iter().zip(self.local.reports_here())
        {
            // SAFETY: the step has ended, so no device writes the words.
            let words = unsafe { context.host_first_non_finite.words() };
            let found = first_non_finite(model.get().tables(), words);
            let buffer = found.map(|it| self.device_program.buffer_in_plan(it));
            lock(report).non_finite_state = buffer;
            if found.is_some() {
                context.first_non_finite.fill(0)?;
            }
        }
        Ok(())
    }

    /// Reports the bytes of a step on the batch of a slot. The ranks may have the next batch
    /// already, in the other slot.
    pub(super) fn report_bytes(&self, runner: &PhaseRunner, slot: usize) {
        for (rank, context) in self.local.ranks.clone().zip(&self.launcher.devices.contexts) {
            let mut report = lock(&self.local.reports[rank]);
            report.moved_bytes = runner.phase().received[rank];
            report.fed_bytes = context.slots[slot].fed_bytes;
        }
    }

    /// Reports the local parts of tensors.
    pub(super) fn report_parts(&mut self, tensors: &[(Tile, BufferId)]) -> Result<(), Error> {
        let model = self.launcher.devices.model.clone();
        let tables = model.get().tables();
        let contexts = self.launcher.devices_mut()?.contexts.iter_mut();
        for ((context, host_io), report) in
            contexts.zip(&self.host_io).zip(self.local.reports_here())
        {
            host_io.parts(tables, context, tensors, &mut lock(report).parts)?;
        }
        Ok(())
    }

    /// Reports when the tasks of a step ran. `queued` is the time of its start in microseconds.
    pub(super) fn report_spans(
        &self,
        phase: &Phase,
        timing: &TimingEvents,
        queued: f64,
    ) -> Result<(), Error> {
        for (at, report) in self.local.reports_here().iter().enumerate() {
            let mut spans = Vec::new();
            for (task, marks_of) in phase.tasks.iter().zip(&timing.tasks) {
                let [first, last] = &marks_of[at];
                let start = first.milliseconds_since(&timing.from[at])?;
                let duration = last.milliseconds_since(first)?;
                let TaskLabel { name, kernel, buffer, work, n_operations } = task.label.clone();
                let buffer = buffer.map(|it| self.device_program.buffer_in_plan(it));
                spans.push(Span {
                    name: name.into(),
                    kernel,
                    buffer,
                    work,
                    stream: task.lane.name(),
                    start: queued + f64::from(start) * 1e3,
                    duration: f64::from(duration) * 1e3,
                    n_bytes: task.n_bytes as u64,
                    n_operations,
                });
            }
            lock(report).spans = spans;
        }
        Ok(())
    }
}
