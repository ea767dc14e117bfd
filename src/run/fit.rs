//! The loop of a training run.
//!
//! A resumed run gives the same results as one without interruption. Each step depends only on the
//! trainer's state, the seed, and the numbers of the epoch, the batch and the step. A checkpoint
//! has all of these.

mod agreement;
mod best_weights;
mod complete;
mod setup;
mod throughput;

use std::{
    fs::File,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use soybean_plan::{Plan, Tables};
use soybean_runtime::{
    Error, Trainer,
    data::{Batch, DataLoader},
};

use super::{
    DatasetEvaluation, End, EvaluationRecord, Event, Flow, Metric, StepRecord, Summary,
    TrainConfig,
    checkpoint_manager::{CheckpointKind, CheckpointManager, leftover},
    evaluation::{EvaluatedModel, evaluate, with_averages},
    identity::RunIdentity,
    metric::Better,
    output::OutputFiles,
    progress::RunProgress,
    record::Record,
    trace,
};

use best_weights::BestWeights;
pub(crate) use setup::fit;
use throughput::{Throughput, ThroughputWindow};

/// The observer of a run.
pub(crate) type Observer<'a> = dyn FnMut(&Event<'_>) -> Flow + 'a;

/// The error of a run, and the checkpoint from which it can resume.
#[derive(Debug)]
pub(crate) struct FitError {
    /// The message names the checkpoint.
    pub(crate) error: Error,
    pub(crate) checkpoint: Option<PathBuf>,
}

impl From<Error> for FitError {
    fn from(error: Error) -> Self {
        Self { error, checkpoint: None }
    }
}

/// A run in progress.
struct Run<'a> {
    trainer: &'a mut Trainer,
    plan: &'a Plan,
    tables: &'a Tables,
    config: &'a TrainConfig,
    /// The metric that selects the best checkpoint; `None` for the held-out loss.
    metric: Option<&'a Metric>,
    train: DataLoader,
    held_out: DataLoader,
    /// Steps of an epoch.
    n_batches: u64,
    /// Steps of the run.
    n_steps: u64,
    batch_rows: usize,
    progress: RunProgress,
    identity: RunIdentity,
    checkpoints: Option<CheckpointManager>,
    files: Option<OutputFiles>,
    observer: &'a mut Observer<'a>,
    is_stopped: bool,
    /// The first error of this process that the other processes do not know yet.
    error: Option<Error>,
    throughput: Throughput,
    /// The file for a trace, and the number of steps before the traced one.
    trace: Option<(PathBuf, u64)>,
    last: Option<EvaluationRecord>,
    best_weights: BestWeights,
    /// Keeps other runs out of the folder.
    _lock: Option<File>,
}

impl Run<'_> {
    /// Trains until the end of the run.
    fn run(&mut self) -> Result<End, Error> {
        if self.progress.is_pending
            && let Some(end) = self.end_step()?
        {
            return Ok(end);
        }
        if self.is_patience_over() {
            return Ok(End::NoBetter);
        }
        while self.progress.step < self.n_steps {
            if let Some(end) = self.epoch()? {
                return Ok(end);
            }
        }
        Ok(End::Finished)
    }

    /// Trains until the end of the epoch or of the run. Each batch is queued during the step before
    /// it.
    fn epoch(&mut self) -> Result<Option<End>, Error> {
        let started = Instant::now();
        self.throughput.of_epoch = ThroughputWindow::default();
        let batch = usize::try_from(self.progress.batch).unwrap_or(usize::MAX);
        self.train.start(self.progress.epoch, batch);
        let first = self.next_batch();
        let first = self.trainer.together(first)?;
        self.trainer.queue(&first.views())?;
        drop(first);
        let mut busy_before = started.elapsed();
        loop {
            self.step(std::mem::take(&mut busy_before))?;
            let is_last = self.is_end_of_epoch();
            if let Some(end) = self.end_step()? {
                return Ok(Some(end));
            }
            if is_last {
                return Ok(None);
            }
        }
    }

    fn is_end_of_epoch(&self) -> bool {
        self.progress.batch >= self.n_batches || self.progress.step >= self.n_steps
    }

    fn next_batch(&mut self) -> Result<Batch, Error> {
        let (epoch, batch) = (self.progress.epoch + 1, self.progress.batch + 1);
        self.train.next().transpose().and_then(|found| {
            found.ok_or_else(|| {
                Error::data(format!(
                    "epoch {epoch}: expected another batch after batch {batch}, found the end of the data"
                ))
            })
        })
    }

    /// Runs a step on the queued batch, and queues the next batch of the epoch.
    fn step(&mut self, busy_before: Duration) -> Result<(), Error> {
        let (started, waited) = (Instant::now(), self.train.waited());
        let config = self.config;
        let learning_rate =
            config.schedule.rate(config.trainer.learning_rate, self.progress.step, self.n_steps);
        self.trainer.set_learning_rate(learning_rate);
        let is_last =
            self.progress.batch + 1 >= self.n_batches || self.progress.step + 1 >= self.n_steps;
        let next =
            if is_last { None } else { self.next_batch().map_err(|it| self.record_error(it)).ok() };
        let views = next.as_ref().map(Batch::views);
        let (loss, traced) = match self.trace.take() {
            Some((file, 0)) => {
                let (loss, trace) = self.trainer.trace_queued(views.as_deref())?;
                (loss, Some((file, trace)))
            }
            waiting => {
                self.trace = waiting.map(|(file, n)| (file, n - 1));
                (self.trainer.step_queued(views.as_deref())?, None)
            }
        };
        let waited_before = if busy_before.is_zero() { waited } else { Duration::ZERO };
        let (busy, waited) =
            (busy_before + started.elapsed(), self.train.waited().saturating_sub(waited_before));
        self.throughput.add(self.batch_rows, busy, waited);
        // The search for the layers' names is no part of the step.
        if let Some((file, trace)) = traced
            && let Err(error) = trace::write(&trace, self.plan, self.trainer.process(), &file)
        {
            self.record_error(error);
        }
        self.record_step(loss, learning_rate);
        Ok(())
    }

    /// Records a step.
    fn record_step(&mut self, loss: f32, learning_rate: f32) {
        let progress = &mut self.progress;
        progress.step += 1;
        progress.batch += 1;
        progress.is_pending = true;
        if self.trainer.was_skipped() {
            progress.n_skipped += 1;
        } else {
            progress.loss_sum += f64::from(loss);
            progress.n_losses += 1;
        }
        let record = StepRecord {
            step: progress.step,
            epoch: progress.epoch + 1,
            batch: progress.batch,
            loss,
            learning_rate,
            gradient_norm: self.trainer.gradient_norm(),
            n_skipped: progress.n_skipped,
            samples_per_second: self.throughput.since_line.samples_per_second(),
            data_wait: self.throughput.since_line.data_wait(),
            time: now(),
        };
        self.notify(&Event::Step(&record));
        if record.step.is_multiple_of(self.config.log_every.max(1)) {
            self.throughput.since_line = ThroughputWindow::default();
            self.write(&Record::Step(record));
        }
    }

    /// Completes a step: evaluates, saves a checkpoint and ends the run where due.
    fn end_step(&mut self) -> Result<Option<End>, Error> {
        self.poll_checkpoint();
        if self.trainer.any(self.is_stopped || self.error.is_some())? {
            self.agree_on_errors()?;
            return self.stop().map(Some);
        }
        let step = self.progress.step;
        let is_due = |every: Option<u64>| every.is_some_and(|every| step.is_multiple_of(every));
        let is_end = self.is_end_of_epoch();
        if step >= self.n_steps {
            self.finish_update()?;
        }
        let mut kind = CheckpointKind::Regular;
        if is_end || is_due(self.config.evaluate_every) {
            match self.evaluate()? {
                Some(found) => kind = found,
                None => return self.stop().map(Some),
            }
        }
        let is_over = self.is_patience_over();
        if is_over && self.finish_update()? > 0 {
            match self.evaluate()? {
                Some(found) => kind = found,
                None => return self.stop().map(Some),
            }
        }
        self.progress.is_pending = false;
        if self.progress.batch >= self.n_batches {
            self.progress.end_epoch();
        }
        if is_end || is_over || kind == CheckpointKind::Best || is_due(self.config.checkpoint_every)
        {
            self.save(kind)?;
        }
        Ok(is_over.then_some(End::NoBetter))
    }

    fn is_patience_over(&self) -> bool {
        let patience = self.config.patience.filter(|it| *it > 0);
        patience.is_some_and(|patience| self.progress.n_worse >= patience)
    }

    /// Writes a checkpoint and stops the run. A checkpoint has the gradients that wait for an
    /// update, to which a resumed run adds those of further steps.
    fn stop(&mut self) -> Result<End, Error> {
        self.save(CheckpointKind::Regular)?;
        if self.checkpoints.is_none() {
            self.finish_update()?;
        }
        Ok(End::Stopped)
    }

    /// Makes the last update of the run, if some steps wait for it. Returns their number.
    fn finish_update(&mut self) -> Result<u64, Error> {
        let n_steps = self.trainer.finish_update()?;
        if n_steps > 0 {
            let all = self.tables.accumulate;
            self.notify(&Event::Note(&format!("the last update has {n_steps} of {all} steps")));
        }
        Ok(n_steps)
    }

    /// Evaluates. Returns the kind of checkpoint to write, or `None` if the run was stopped.
    fn evaluate(&mut self) -> Result<Option<CheckpointKind>, Error> {
        let started = Instant::now();
        let Some(outcome) = self.evaluate_held_out()? else { return Ok(None) };
        let record = EvaluationRecord {
            step: self.progress.step,
            epoch: self.progress.epoch + 1,
            ends_epoch: self.progress.batch >= self.n_batches,
            train_loss: self.progress.mean_loss(),
            held_out_loss: outcome.loss,
            metrics: outcome.metrics,
            samples_per_second: self.throughput.of_epoch.samples_per_second(),
            seconds: started.elapsed().as_secs_f64(),
            time: now(),
        };
        let (value, better) = self.watched(&record)?;
        let is_better = self.progress.update_best(value, better, self.config.min_delta);
        if is_better {
            self.best_weights.keep(self.trainer, self.config)?;
        }
        self.notify(&Event::Evaluation(&record));
        self.write(&Record::Evaluation(record.clone()));
        self.last = Some(record);
        Ok(Some(if is_better { CheckpointKind::Best } else { CheckpointKind::Regular }))
    }

    /// Evaluates the parameters or their averages.
    fn evaluate_held_out(&mut self) -> Result<Option<DatasetEvaluation>, Error> {
        let (observer, is_stopped) = (&mut *self.observer, &mut self.is_stopped);
        let model = EvaluatedModel { tables: self.tables, recipe: self.plan.recipe };
        let held_out = &mut self.held_out;
        let n_batches = held_out.n_batches();
        let mut stop = |n_done| {
            *is_stopped |= observer(&Event::Evaluating { n_done, n_batches }) == Flow::Stop;
            *is_stopped
        };
        let metrics = &self.config.metrics;
        let mut work = |trainer: &mut _| evaluate(trainer, held_out, model, metrics, &mut stop);
        match self.config.evaluate_averages {
            true => with_averages(self.trainer, work),
            false => work(self.trainer),
        }
    }

    /// Returns the watched value, and which values are better.
    fn watched(&self, record: &EvaluationRecord) -> Result<(f64, Better), Error> {
        let Some(metric) = self.metric else { return Ok((record.held_out_loss, Better::Lower)) };
        match record.metric(metric.name()) {
            Some(value) => Ok((value, metric.better())),
            None => {
                let names: Vec<&str> = record.metrics.iter().map(|it| it.0.as_str()).collect();
                Err(self.config.unknown_metric(&names))
            }
        }
    }

    fn save(&mut self, kind: CheckpointKind) -> Result<(), Error> {
        if let Err(error) = self.files.as_ref().map_or(Ok(()), OutputFiles::sync) {
            self.record_error(error);
        }
        self.agree_on_errors()?;
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        let mut saved_progress = self.progress.to_checkpoint(self.config.trainer.seed);
        self.identity.store(&mut saved_progress.extra);
        let saved = checkpoints.save(self.trainer, &saved_progress, kind);
        let saved = self.trainer.together(saved)?;
        self.notify_saved(saved);
        Ok(())
    }

    /// Reports a checkpoint that was completed in the background.
    fn poll_checkpoint(&mut self) {
        match self.checkpoints.as_mut().map_or(Ok(None), CheckpointManager::poll) {
            Ok(saved) => self.notify_saved(saved),
            Err(error) => self.record_error(error),
        }
    }

    fn notify_saved(&mut self, saved: Option<PathBuf>) {
        let warnings = self.checkpoints.as_mut().map(CheckpointManager::take_warnings);
        for warning in warnings.into_iter().flatten() {
            self.notify(&Event::Note(&leftover(&warning)));
        }
        if let Some(path) = saved {
            self.notify(&Event::Checkpoint(&path));
        }
    }

    fn notify(&mut self, event: &Event<'_>) {
        self.is_stopped |= (self.observer)(event) == Flow::Stop;
    }

    fn write(&mut self, record: &Record) {
        if let Err(error) = self.files.as_mut().map_or(Ok(()), |files| files.add(record)) {
            self.record_error(error);
        }
    }

    /// Records an error of this process until all processes exchange their errors.
    fn record_error(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// Returns an error if any process has one.
    fn agree_on_errors(&mut self) -> Result<(), Error> {
        let here = self.error.take().map_or(Ok(()), Err);
        self.trainer.together(here)
    }

    /// Waits for background writes and completes the files.
    fn finish(&mut self) -> Result<(), Error> {
        match self.checkpoints.as_mut().map_or(Ok(None), CheckpointManager::wait) {
            Ok(saved) => self.notify_saved(saved),
            Err(error) => self.record_error(error),
        }
        if let Err(error) = self.files.as_ref().map_or(Ok(()), OutputFiles::finish) {
            self.record_error(error);
        }
        if let Some((file, _)) = self.trace.take() {
            let file = file.display();
            self.notify(&Event::Note(&format!("too few steps were made for a trace in {file}")));
        }
        self.agree_on_errors()
    }

    fn summary(&self, end: End) -> Summary {
        let checkpoints = self.checkpoints.as_ref();
        Summary {
            end,
            n_steps: self.progress.step,
            n_skipped: self.progress.n_skipped,
            last: self.last.clone(),
            best: self.progress.best,
            best_step: self.progress.best_step,
            checkpoint: checkpoints.and_then(|it| it.newest().map(Into::into)),
            best_checkpoint: checkpoints.and_then(|it| it.best().map(Into::into)),
        }
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
