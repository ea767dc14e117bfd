//! The thread of one rank on the CPU, which executes the trainer's commands on its own memory.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use soybean_plan::panic_message;

use crate::{
    Error, ErrorKind, Model, Profile, Rank, View,
    abort::lock,
    counters::is_update,
    cpu::Cpu,
    dispatch::SharedState,
    host_io::HostIo,
    inspection::Inspection,
    model::AnyModel,
    ranks::{BatchSource, Command, TrainStep},
    shared_memory::SharedMemoryCommunicator,
    state,
};

/// The calls of one step.
type Steps<'a> = &'a dyn Fn(&dyn Model, &mut Rank<'_>);

/// A rank on the CPU.
pub(crate) struct Worker {
    pub(crate) rank: usize,
    pub(crate) model: AnyModel,
    pub(crate) cpu: Cpu,
    pub(crate) communicator: SharedMemoryCommunicator,
    pub(crate) shared: SharedState,
    pub(crate) seed: u64,
}

impl Worker {
    /// Executes commands until there are no more.
    pub(crate) fn run(mut self) {
        let mut host_io = None;
        let mut number = 0;
        let mut is_over = false;
        let dispatcher = Arc::clone(&self.shared.dispatcher);
        while !is_over {
            dispatcher.serve_next(number, |command| match command {
                Some(command) => self.execute(command, &mut host_io),
                None => is_over = true,
            });
            number += 1;
        }
    }

    fn execute(&mut self, command: Command<'_>, host_io: &mut Option<HostIo>) {
        if self.shared.abort.is_failed() {
            return;
        }
        let result = catch_unwind(AssertUnwindSafe(|| match host_io {
            Some(host_io) => self.serve(command, host_io),
            None => self.prepare().and_then(|made| self.serve(command, host_io.insert(made))),
        }));
        let error = match result {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.on_rank(self.rank),
            Err(panic) => {
                let message = format!("panicked: {}", panic_message(&*panic));
                Error::new(ErrorKind::Rank, message).on_rank(self.rank)
            }
        };
        self.shared.abort.fail(error);
    }

    /// Writes the initial values. The thread of the rank does so, so that the memory is near its
    /// core.
    fn prepare(&mut self) -> Result<HostIo, Error> {
        let tables = self.model.get().tables();
        let host_io = HostIo::new(tables, self.rank);
        host_io.fill(tables, &mut self.cpu, self.seed)?;
        Ok(host_io)
    }

    fn serve(&mut self, command: Command<'_>, host_io: &mut HostIo) -> Result<(), Error> {
        let model = self.model.clone();
        let tables = model.get().tables();
        let reports = Arc::clone(&self.shared.reports);
        let report = &reports[self.rank];
        match command {
            Command::Train(TrainStep {
                entry,
                batch: BatchSource::Batch(batch),
                context,
                trace_from,
                is_inspected,
            }) => {
                self.cpu.set_scalars(host_io.scalars(tables, self.seed, context));
                let mut inspection = Inspection::default();
                let inspected = is_inspected.then_some(&mut inspection);
                let is_update = is_update(context.counters, tables);
                let train: Steps<'_> = &|model, rank| model.train(entry, rank);
                let accumulate: Steps<'_> = &|model, rank| model.accumulate(rank);
                let (steps, numbers) = match (is_update, &tables.entries[entry].training) {
                    (true, Some(it)) => (train, (Some(it.loss), it.gradient_norm)),
                    (true, None) => (train, (None, None)),
                    (false, _) => (accumulate, (tables.accumulate_loss, None)),
                };
                self.step((entry, batch), host_io, trace_from, inspected, steps)?;
                let mut report = lock(report);
                report.inspection = inspection;
                report.non_finite_state = self.cpu.take_non_finite_state();
                if let (0, (Some(loss), norm)) = (self.rank, numbers) {
                    let norm = norm.map(|it| self.cpu.number(it)).transpose()?;
                    report.loss = self.cpu.number(loss)?;
                    report.gradient_norm = norm;
                }
            }
            Command::Evaluate { entry, batch, is_inspected } => {
                let mut seen = Inspection::default();
                let steps: Steps<'_> = &|model, rank| model.evaluate(entry, rank);
                let inspected = is_inspected.then_some(&mut seen);
                self.step((entry, batch), host_io, None, inspected, steps)?;
                let outputs = tables.outputs_of(entry).iter().map(|it| (it.tile, it.buffer));
                let outputs: Vec<_> = outputs.collect();
                let mut report = lock(report);
                report.inspection = seen;
                host_io.parts(tables, &mut self.cpu, &outputs, &mut report.parts)?;
            }
            Command::Fetch(range) | Command::Save(range) => {
                let tensors = range.buffers(tables);
                host_io.parts(tables, &mut self.cpu, &tensors, &mut lock(report).parts)?;
            }
            Command::Load { first, tensors } => {
                host_io.load(tables, &mut self.cpu, first, tensors)?;
            }
            Command::Queue { .. }
            | Command::Train(TrainStep { batch: BatchSource::Queued { .. }, .. }) => {
                let message =
                    "expected a batch of this step: the trainer's thread keeps those of later ones";
                return Err(Error::new(ErrorKind::Program, message));
            }
            Command::ResetProfile => lock(report).profile = Profile::default(),
        }
        Ok(())
    }

    fn step(
        &mut self,
        batch: (usize, &[View<'_>]),
        host_io: &HostIo,
        trace_from: Option<Instant>,
        inspection: Option<&mut Inspection>,
        steps: Steps<'_>,
    ) -> Result<(), Error> {
        let start = Instant::now();
        let model = self.model.get();
        let fed_bytes = host_io.feed(model.tables(), &mut self.cpu, batch)?;
        let mut profile = lock(&self.shared.reports[self.rank]).profile;
        let mut rank = Rank::new(
            model.kernels(),
            &mut self.cpu,
            &mut self.communicator,
            &mut profile,
            trace_from,
        );
        if let Some(inspection) = inspection {
            let tensors = state::tensors(model.tables()).map(|it| it.buffer);
            rank.inspect(&tensors.collect::<Vec<_>>(), inspection);
        }
        steps(model, &mut rank);
        let (moved_bytes, spans) = rank.finish()?;
        profile.n_steps += 1;
        profile.total += start.elapsed();
        let mut report = lock(&self.shared.reports[self.rank]);
        report.profile = profile;
        report.moved_bytes = moved_bytes;
        report.fed_bytes = fed_bytes;
        report.spans = spans;
        Ok(())
    }
}
