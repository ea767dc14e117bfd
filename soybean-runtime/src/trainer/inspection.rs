//! Inspected training steps.

use super::{Trainer, updates::DroppedUpdate};
use crate::{
    Array, Config, Counters, Device, Error, ErrorKind, NonFiniteTensor, Process, View,
    abort::lock,
    inspection::Inspection,
    ranks::{BatchSource, Command, TrainStep},
    state::fetch_ranges,
};

impl Trainer {
    /// Runs a training step as [`Self::step`] does, and looks at all tensors that it computes.
    /// Returns the first one that is not finite, and the first one with NaN if that is another one.
    /// There is no error if the loss is not finite.
    ///
    /// On GPUs, a copy of the trainer on the CPU runs the step, and this trainer does not change.
    /// The same holds if several steps share an update and the last step was one that failed: the
    /// copy runs the update again. It has the sums of the gradients of the steps before if that
    /// update was the last of many that were skipped, and otherwise zeros, as the failed step left
    /// them.
    ///
    /// # Errors
    /// If the batch does not fit the model, a rank fails, or there are several processes.
    pub fn inspect_step(&mut self, batch: &[View<'_>]) -> Result<Vec<NonFiniteTensor>, Error> {
        self.inspect_step_by(0, batch)
    }

    /// Inspects a step of the entry of this number, as [`Self::inspect_step`] does.
    ///
    /// # Errors
    /// As [`Self::inspect_step`].
    pub fn inspect_step_by(
        &mut self,
        entry: usize,
        batch: &[View<'_>],
    ) -> Result<Vec<NonFiniteTensor>, Error> {
        self.check_only_process()?;
        if let Some(update) = self.history.dropped.take() {
            let copy = self.copy_on_cpu().and_then(|mut copy| {
                copy.return_to(&update)?;
                Ok(copy)
            });
            self.history.dropped = Some(update);
            return copy?.inspect_step_by(entry, batch);
        }
        if !self.ranks.can_inspect() {
            return self.copy_on_cpu()?.inspect_step_by(entry, batch);
        }
        self.check_batch_of(entry, batch)?;
        let context = self.context(entry, self.learning_rate);
        let batch = BatchSource::Batch(batch);
        let step = TrainStep { entry, batch, context, trace_from: None, is_inspected: true };
        self.call(Command::Train(step))?;
        // The caller learns the reason why the loss is not finite.
        let _ = self.finish_step(entry, DroppedUpdate::default());
        Ok(self.found())
    }

    /// Runs the forward computation of the first entry, and looks at all tensors that it computes,
    /// as [`Self::inspect_step`] does. On GPUs, a copy of the trainer on the CPU runs it.
    ///
    /// # Errors
    /// As [`Self::inspect_step`].
    pub fn inspect_evaluation(
        &mut self,
        batch: &[View<'_>],
    ) -> Result<Vec<NonFiniteTensor>, Error> {
        self.check_only_process()?;
        if !self.ranks.can_inspect() {
            return self.copy_on_cpu()?.inspect_evaluation(batch);
        }
        self.check_batch(batch)?;
        self.call(Command::Evaluate { entry: 0, batch, is_inspected: true })?;
        Ok(self.found())
    }

    fn check_only_process(&self) -> Result<(), Error> {
        if self.process() == Process::ONLY {
            return Ok(());
        }
        let message = "expected one process, which can look at all tensors, found several";
        Err(Error::new(ErrorKind::Process, message))
    }

    /// Returns what the ranks have found, the first of all ranks.
    fn found(&self) -> Vec<NonFiniteTensor> {
        let inspections = self.ranks.reports().iter().map(|it| lock(it).inspection.clone());
        let inspections: Vec<Inspection> = inspections.collect();
        let first = |of: fn(&Inspection) -> Option<NonFiniteTensor>| {
            inspections.iter().filter_map(of).min_by_key(|it| it.call)
        };
        let (first, first_nan) = (first(|it| it.first), first(|it| it.first_nan));
        let is_other = |it: &NonFiniteTensor| first.is_some_and(|first| first.call != it.call);
        first.into_iter().chain(first_nan.filter(is_other)).collect()
    }

    /// Makes the next step the update that was dropped.
    fn return_to(&mut self, update: &DroppedUpdate) -> Result<(), Error> {
        for (number, sum) in &update.sums {
            self.load(*number, &[View::F32(&sum.data)])?;
        }
        let n_accumulated = self.tables().accumulate - 1;
        self.set_counters(Counters { n_accumulated, ..self.counters() });
        Ok(())
    }

    /// Returns a trainer on the CPU with the same state.
    fn copy_on_cpu(&mut self) -> Result<Self, Error> {
        let learning_rate = self.learning_rate;
        let config = Config { device: Device::Cpu, learning_rate, ..self.config.clone() };
        let mut copy = Self::start(self.model.clone(), &config, self.tables().mode())?;
        for range in fetch_ranges(self.tables()) {
            let tensors = self.fetch(range)?;
            let views: Vec<View<'_>> =
                tensors.iter().map(|Array { data, .. }| View::F32(data)).collect();
            copy.load(range.first, &views)?;
        }
        copy.set_counters(self.counters());
        Ok(copy)
    }
}
