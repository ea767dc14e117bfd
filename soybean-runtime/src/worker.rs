//! The thread of one rank on the CPU: it carries out the trainer's orders on its own memory.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use soybean_plan::panic_message;

use crate::{
    Error, ErrorKind, Model, Profile, Rank, View,
    abort::lock,
    cpu::Cpu,
    dispatch::SharedState,
    ends::Ends,
    model::AnyModel,
    ranks::{Feed, Order, Training},
    shared_memory::SharedMemoryCommunicator,
};

/// A rank's side of the trainer.
pub(crate) struct Worker {
    pub(crate) rank: usize,
    pub(crate) model: AnyModel,
    pub(crate) cpu: Cpu,
    pub(crate) communicator: SharedMemoryCommunicator,
    pub(crate) shared: SharedState,
    pub(crate) seed: u64,
}

impl Worker {
    /// Carries out orders until there are no more.
    pub(crate) fn run(mut self) {
        let mut ends = None;
        let mut number = 0;
        let mut is_over = false;
        let dispatcher = Arc::clone(&self.shared.dispatcher);
        while !is_over {
            dispatcher.serve_next(number, |order| match order {
                Some(order) => self.carry_out(order, &mut ends),
                None => is_over = true,
            });
            number += 1;
        }
    }

    fn carry_out(&mut self, order: Order<'_>, ends: &mut Option<Ends>) {
        if self.shared.abort.is_failed() {
            return;
        }
        let result = catch_unwind(AssertUnwindSafe(|| match ends {
            Some(ends) => self.serve(order, ends),
            None => self.prepare().and_then(|made| self.serve(order, ends.insert(made))),
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

    /// First values, in the thread that works with them, so that they lie near it.
    fn prepare(&mut self) -> Result<Ends, Error> {
        let tables = self.model.get().tables();
        let ends = Ends::new(tables, self.rank);
        ends.fill(tables, &mut self.cpu, self.seed)?;
        Ok(ends)
    }

    fn serve(&mut self, order: Order<'_>, ends: &mut Ends) -> Result<(), Error> {
        let model = self.model.clone();
        let tables = model.get().tables();
        let report = Arc::clone(&self.shared.reports);
        let report = &report[self.rank];
        match order {
            Order::Train(Training { feed: Feed::Batch(batch), moment, trace_from }) => {
                self.cpu.set_scalars(ends.scalars(tables, self.seed, moment));
                self.step(batch, ends, trace_from, |model, rank| model.train(rank))?;
                if let (0, Some(loss)) = (self.rank, tables.loss) {
                    let norm = tables.gradient_norm.map(|it| self.cpu.number(it)).transpose()?;
                    let mut report = lock(report);
                    report.loss = self.cpu.number(loss)?;
                    report.gradient_norm = norm;
                }
            }
            Order::Evaluate { batch } => {
                self.step(batch, ends, None, |model, rank| model.evaluate(rank))?;
                let outputs: Vec<_> =
                    tables.outputs.iter().map(|it| (it.tile, it.buffer)).collect();
                ends.parts(tables, &mut self.cpu, &outputs, &mut lock(report).parts)?;
            }
            Order::Fetch(stretch) | Order::Save(stretch) => {
                let tensors = stretch.buffers(tables);
                ends.parts(tables, &mut self.cpu, &tensors, &mut lock(report).parts)?;
            }
            Order::Load { first, tensors } => ends.load(tables, &mut self.cpu, first, tensors)?,
            Order::Queue { .. } | Order::Train(Training { feed: Feed::Queued { .. }, .. }) => {
                let message =
                    "expected a batch of this step: the trainer's thread keeps those of later ones";
                return Err(Error::new(ErrorKind::Program, message));
            }
            Order::ResetProfile => lock(report).profile = Profile::default(),
        }
        Ok(())
    }

    fn step(
        &mut self,
        batch: &[View<'_>],
        ends: &Ends,
        trace_from: Option<Instant>,
        steps: fn(&dyn Model, &mut Rank<'_>),
    ) -> Result<(), Error> {
        let start = Instant::now();
        let model = self.model.get();
        ends.feed(model.tables(), &mut self.cpu, batch)?;
        let mut profile = lock(&self.shared.reports[self.rank]).profile;
        let mut rank = Rank::new(
            model.kernels(),
            &mut self.cpu,
            &mut self.communicator,
            &mut profile,
            trace_from,
        );
        steps(model, &mut rank);
        let (moved_bytes, spans) = rank.finish()?;
        profile.n_steps += 1;
        profile.total += start.elapsed();
        let mut report = lock(&self.shared.reports[self.rank]);
        report.profile = profile;
        report.moved_bytes = moved_bytes;
        report.spans = spans;
        Ok(())
    }
}
