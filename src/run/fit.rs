//! The loop of a training run.
//!
//! A run is the same whether it is interrupted or not: what each step computes follows from the trainer's state, the seed, and the numbers of the epoch, the batch and the step, and a checkpoint
//! has all of these.

mod begin;
mod pace;

use std::{
    fs::File,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use soybean_plan::Tables;
use soybean_runtime::{
    Error, Trainer,
    data::{Batch, DataLoader},
};

use super::{
    End, EvaluationRecord, Event, Flow, Metric, StepRecord, Summary, TrainConfig,
    evaluation::{Outcome, evaluate, with_averages},
    files::Files,
    keeper::{Keeper, Merit},
    metric::Better,
    record::Record,
    standing::Standing,
    trace,
};

pub(crate) use begin::fit;
use pace::{Pace, Stretch};

/// What a run tells, to whom.
pub(crate) type Watch<'a> = dyn FnMut(&Event<'_>) -> Flow + 'a;

/// Why a run ended early, and where it can go on.
#[derive(Debug)]
pub(crate) struct Broken {
    /// It names the checkpoint.
    pub(crate) error: Error,
    pub(crate) checkpoint: Option<PathBuf>,
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self { error, checkpoint: None }
    }
}

/// A run that is under way.
struct Run<'a> {
    trainer: &'a mut Trainer,
    tables: &'a Tables,
    config: &'a TrainConfig,
    /// What chooses the best, if it is not the held-out loss.
    metric: Option<&'a Metric>,
    train: DataLoader,
    held_out: DataLoader,
    /// The steps of an epoch.
    n_batches: u64,
    /// The steps of the run.
    n_steps: u64,
    batch_rows: usize,
    standing: Standing,
    keeper: Option<Keeper>,
    files: Option<Files>,
    watch: &'a mut Watch<'a>,
    is_stopped: bool,
    /// What failed in this process since all processes have spoken with each other.
    fault: Option<Error>,
    pace: Pace,
    /// Where the trace goes of the step that is so many away.
    trace: Option<(PathBuf, u64)>,
    last: Option<EvaluationRecord>,
    /// Keeps other runs out of the folder.
    _lock: Option<File>,
}

impl Run<'_> {
    /// Trains to the end.
    fn run(&mut self) -> Result<End, Error> {
        if self.standing.is_pending
            && let Some(end) = self.end_step()?
        {
            return Ok(end);
        }
        if self.is_patience_over() {
            return Ok(End::NoBetter);
        }
        while self.standing.step < self.n_steps {
            if let Some(end) = self.epoch()? {
                return Ok(end);
            }
        }
        Ok(End::Finished)
    }

    /// Trains to the end of the epoch, or of the run. Each batch is handed over while the step before it runs.
    fn epoch(&mut self) -> Result<Option<End>, Error> {
        let started = Instant::now();
        self.pace.of_epoch = Stretch::default();
        let batch = usize::try_from(self.standing.batch).unwrap_or(usize::MAX);
        self.train.start(self.standing.epoch, batch);
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
        self.standing.batch >= self.n_batches || self.standing.step >= self.n_steps
    }

    fn next_batch(&mut self) -> Result<Batch, Error> {
        let (epoch, batch) = (self.standing.epoch + 1, self.standing.batch + 1);
        self.train.next().transpose().and_then(|found| {
            found.ok_or_else(|| {
                Error::data(format!(
                    "epoch {epoch}: expected another batch after batch {batch}, found the end of the data"
                ))
            })
        })
    }

    /// One step on the batch that was queued; then the next one of the epoch is queued.
    fn step(&mut self, busy_before: Duration) -> Result<(), Error> {
        let (started, waited) = (Instant::now(), self.train.waited());
        let config = self.config;
        let learning_rate =
            config.schedule.rate(config.trainer.learning_rate, self.standing.step, self.n_steps);
        self.trainer.set_learning_rate(learning_rate);
        let is_last =
            self.standing.batch + 1 >= self.n_batches || self.standing.step + 1 >= self.n_steps;
        let next = if is_last { None } else { self.next_batch().map_err(|it| self.fail(it)).ok() };
        let views = next.as_ref().map(Batch::views);
        let loss = match self.trace.take() {
            Some((file, 0)) => {
                let (loss, trace) = self.trainer.trace_queued(views.as_deref())?;
                if let Err(error) = trace::write(&trace, self.trainer.process(), &file) {
                    self.fail(error);
                }
                loss
            }
            waiting => {
                self.trace = waiting.map(|(file, n)| (file, n - 1));
                self.trainer.step_queued(views.as_deref())?
            }
        };
        let waited_before = if busy_before.is_zero() { waited } else { Duration::ZERO };
        let (busy, waited) =
            (busy_before + started.elapsed(), self.train.waited().saturating_sub(waited_before));
        self.pace.add(self.batch_rows, busy, waited);
        self.count(loss, learning_rate);
        Ok(())
    }

    /// Takes note of a step.
    fn count(&mut self, loss: f32, learning_rate: f32) {
        let standing = &mut self.standing;
        standing.step += 1;
        standing.batch += 1;
        standing.is_pending = true;
        if self.trainer.was_skipped() {
            standing.n_skipped += 1;
        } else {
            standing.loss_sum += f64::from(loss);
            standing.n_losses += 1;
        }
        let record = StepRecord {
            step: standing.step,
            epoch: standing.epoch + 1,
            batch: standing.batch,
            loss,
            learning_rate,
            gradient_norm: self.trainer.gradient_norm(),
            n_skipped: standing.n_skipped,
            samples_per_second: self.pace.since_line.samples_per_second(),
            data_wait: self.pace.since_line.data_wait(),
            time: now(),
        };
        self.tell(&Event::Step(&record));
        if record.step.is_multiple_of(self.config.log_every.max(1)) {
            self.pace.since_line = Stretch::default();
            self.write(&Record::Step(record));
        }
    }

    /// What is to be done behind a step: an evaluation, a checkpoint, and the end of the run.
    fn end_step(&mut self) -> Result<Option<End>, Error> {
        self.poll();
        if self.trainer.any(self.is_stopped || self.fault.is_some())? {
            self.agree()?;
            return self.stop().map(Some);
        }
        let step = self.standing.step;
        let is_due = |every: Option<u64>| every.is_some_and(|every| step.is_multiple_of(every));
        let is_end = self.is_end_of_epoch();
        let mut merit = Merit::Further;
        if is_end || is_due(self.config.evaluate_every) {
            match self.evaluate()? {
                Some(found) => merit = found,
                None => return self.stop().map(Some),
            }
        }
        self.standing.is_pending = false;
        if self.standing.batch >= self.n_batches {
            self.standing.end_epoch();
        }
        let is_over = self.is_patience_over();
        if is_end || is_over || merit == Merit::Best || is_due(self.config.checkpoint_every) {
            self.save(merit)?;
        }
        Ok(is_over.then_some(End::NoBetter))
    }

    fn is_patience_over(&self) -> bool {
        let patience = self.config.patience.filter(|it| *it > 0);
        patience.is_some_and(|patience| self.standing.n_worse >= patience)
    }

    /// Writes a checkpoint of a run that was told to stop.
    fn stop(&mut self) -> Result<End, Error> {
        self.save(Merit::Further)?;
        Ok(End::Stopped)
    }

    /// Evaluates, and says whether the run was never better; nothing if it was told to stop.
    fn evaluate(&mut self) -> Result<Option<Merit>, Error> {
        let started = Instant::now();
        let Some(outcome) = self.outcome()? else { return Ok(None) };
        let record = EvaluationRecord {
            step: self.standing.step,
            epoch: self.standing.epoch + 1,
            ends_epoch: self.standing.batch >= self.n_batches,
            train_loss: self.standing.mean_loss(),
            held_out_loss: outcome.loss,
            metrics: outcome.metrics,
            samples_per_second: self.pace.of_epoch.samples_per_second(),
            seconds: started.elapsed().as_secs_f64(),
            time: now(),
        };
        let (value, better) = self.watched(&record)?;
        let is_better = self.standing.judge(value, better, self.config.min_delta);
        self.tell(&Event::Evaluation(&record));
        self.write(&Record::Evaluation(record.clone()));
        self.last = Some(record);
        Ok(Some(if is_better { Merit::Best } else { Merit::Further }))
    }

    /// What an evaluation finds, of the parameters or of their averages.
    fn outcome(&mut self) -> Result<Option<Outcome>, Error> {
        let (watch, is_stopped) = (&mut *self.watch, &mut self.is_stopped);
        let (tables, held_out) = (self.tables, &mut self.held_out);
        let n_batches = held_out.n_batches();
        let mut stop = |n_done| {
            *is_stopped |= watch(&Event::Evaluating { n_done, n_batches }) == Flow::Stop;
            *is_stopped
        };
        let metrics = &self.config.metrics;
        let mut work = |trainer: &mut _| evaluate(trainer, held_out, tables, metrics, &mut stop);
        match self.config.evaluate_averages {
            true => with_averages(self.trainer, work),
            false => work(self.trainer),
        }
    }

    /// The value that is watched, and which values of it are better.
    fn watched(&self, record: &EvaluationRecord) -> Result<(f64, Better), Error> {
        let Some(metric) = self.metric else { return Ok((record.held_out_loss, Better::Lower)) };
        match record.metric(metric.name()) {
            Some(value) => Ok((value, metric.better())),
            None => {
                let names: Vec<&str> = record.metrics.iter().map(|it| it.0.as_str()).collect();
                Err(self.config.unwatched(&names))
            }
        }
    }

    fn save(&mut self, merit: Merit) -> Result<(), Error> {
        if let Err(error) = self.files.as_ref().map_or(Ok(()), Files::sync) {
            self.fail(error);
        }
        self.agree()?;
        let Some(keeper) = &mut self.keeper else { return Ok(()) };
        let progress = self.standing.progress(self.config.trainer.seed);
        let saved = keeper.save(self.trainer, &progress, merit);
        let saved = self.trainer.together(saved)?;
        self.tell_saved(saved);
        Ok(())
    }

    /// Looks for a checkpoint that was being written.
    fn poll(&mut self) {
        match self.keeper.as_mut().map_or(Ok(None), Keeper::poll) {
            Ok(saved) => self.tell_saved(saved),
            Err(error) => self.fail(error),
        }
    }

    fn tell_saved(&mut self, saved: Option<PathBuf>) {
        if let Some(path) = saved {
            self.tell(&Event::Checkpoint(&path));
        }
    }

    fn tell(&mut self, event: &Event<'_>) {
        self.is_stopped |= (self.watch)(event) == Flow::Stop;
    }

    fn write(&mut self, record: &Record) {
        if let Err(error) = self.files.as_mut().map_or(Ok(()), |files| files.add(record)) {
            self.fail(error);
        }
    }

    /// Takes note of a failure in this process, of which the others hear when all are asked.
    fn fail(&mut self, error: Error) {
        self.fault.get_or_insert(error);
    }

    /// Goes on if all processes can.
    fn agree(&mut self) -> Result<(), Error> {
        let here = self.fault.take().map_or(Ok(()), Err);
        self.trainer.together(here)
    }

    /// Waits for what is being written, and finishes the files.
    fn finish(&mut self) -> Result<(), Error> {
        match self.keeper.as_mut().map_or(Ok(None), Keeper::wait) {
            Ok(saved) => self.tell_saved(saved),
            Err(error) => self.fail(error),
        }
        if let Err(error) = self.files.as_ref().map_or(Ok(()), Files::finish) {
            self.fail(error);
        }
        if let Some((file, _)) = self.trace.take() {
            let file = file.display();
            self.tell(&Event::Note(&format!("too few steps were made for a trace in {file}")));
        }
        self.agree()
    }

    fn summary(&self, end: End) -> Summary {
        let keeper = self.keeper.as_ref();
        Summary {
            end,
            n_steps: self.standing.step,
            n_skipped: self.standing.n_skipped,
            last: self.last.clone(),
            best: self.standing.best,
            best_step: self.standing.best_step,
            checkpoint: keeper.and_then(|it| it.newest().map(Into::into)),
            best_checkpoint: keeper.and_then(|it| it.best().map(Into::into)),
        }
    }

    /// The error of a run, with what is left of it.
    fn broken(&mut self, error: &Error) -> Broken {
        let Some(keeper) = &mut self.keeper else { return error.clone().into() };
        let checkpoint = keeper.left().map(PathBuf::from);
        let left = match &checkpoint {
            None => "no checkpoint was written before".to_owned(),
            Some(path) => format!("the last checkpoint is {}", path.display()),
        };
        Broken { error: Error::new(error.kind(), format!("{error}; {left}")), checkpoint }
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
