//! `bench`: measures training steps, their parts, moved bytes and memory.

#[cfg(test)]
mod tests;

use std::{
    fmt, fs,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use soybean_plan::{Tables, readable_bytes};
use soybean_runtime::{
    KernelCategory, MemoryBesidePlan, Trace, Trainer,
    data::{Batch, DataLoader, Dataset, Last, LoaderOptions},
};

use super::{CommandError, CommandModel, flags::Options};
use crate::run::{batch_size, loader, write_trace};

/// Steps or predictions before the measured ones.
pub(super) const N_WARM_UP: usize = 3;

/// Default number of measured steps or predictions.
pub(super) const N_MEASURED: u64 = 20;

pub(super) fn bench(
    model: &CommandModel,
    options: &Options,
    dataset: &Arc<dyn Dataset>,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let tables = model.model.tables();
    let run = &options.run;
    let training = LoaderOptions::training(batch_size(&tables.inputs)?, run.trainer.seed);
    let training = LoaderOptions { last: Last::Pad, ..training };
    let loader = loader("training", dataset, &tables.inputs, training)?;
    let mut supply = Supply { loader, epoch: 0, waited: Duration::ZERO };
    let mut trainer = Trainer::new(model.model, run.trainer.clone())?;
    let times = measure_steps(&mut trainer, &mut supply, tables, options.n_measured)?;
    let TracedUpdate { first, last, moved } = trace_update(&mut trainer, &mut supply, tables)?;
    let steps: Vec<&TracedStep> = first.iter().chain([&last]).collect();
    if let Some(file) = &run.trace {
        write_trace(&last.trace, &model.plan, trainer.process(), file)?;
    }
    writeln!(output, "model             {}, {}", tables.name, trainer.device_line())?;
    times.write(tables, options.n_measured, output)?;
    for step in &steps {
        writeln!(output, "time              {}{}", step.shares(), step.suffix(tables))?;
    }
    writeln!(
        output,
        "data              {:.2} % of the time waited for, {} for batches",
        100.0 * times.waited,
        readable_bytes(supply.loader.n_bytes() as u64)
    )?;
    for step in &steps {
        let (TracedStep { predicted, moved, .. }, suffix) = (step, step.suffix(tables));
        writeln!(output, "bytes per step    {predicted} predicted, {moved} counted{suffix}")?;
    }
    if tables.accumulate > 1 {
        let (predicted, n) = (tables.measured_bytes(), tables.accumulate);
        writeln!(output, "bytes per update  {predicted} predicted, {moved} counted, in {n} steps")?;
    }
    writeln!(output, "feeding           {}", feeding(tables, 0, trainer.fed_bytes()))?;
    writeln!(output, "memory            {}", memory(tables, trainer.memory_beside_plan()))?;
    Ok(())
}

/// The times of measured steps.
#[derive(Default)]
struct StepTimes {
    steps: Times,
    /// The fraction of the time spent waiting for data.
    waited: f64,
}

impl StepTimes {
    fn write(
        &self,
        tables: &Tables,
        n_wanted: Option<u64>,
        output: &mut dyn Write,
    ) -> Result<(), CommandError> {
        let n_wanted = n_wanted.unwrap_or(N_MEASURED);
        writeln!(output, "steps per second  {:.2}", self.steps.per_second())?;
        let rounded = match n_wanted.is_multiple_of(tables.accumulate) {
            true => String::new(),
            false => format!(", which are whole updates, instead of {n_wanted}"),
        };
        writeln!(output, "step              {} steps{rounded}", self.steps)?;
        if tables.accumulate > 1 {
            let updates = self.steps.sums_of(tables.accumulate);
            writeln!(output, "update            {updates} updates")?;
        }
        Ok(())
    }
}

/// Measures the training steps of whole updates, at least as many as wanted, after those of other
/// updates. Steps that update take longer than those that only accumulate gradients.
fn measure_steps(
    trainer: &mut Trainer,
    supply: &mut Supply,
    tables: &Tables,
    n_wanted: Option<u64>,
) -> Result<StepTimes, CommandError> {
    let of_updates = |n_steps: u64| n_steps.next_multiple_of(tables.accumulate);
    for _ in 0..of_updates(N_WARM_UP as u64) {
        trainer.step(&supply.next()?.views())?;
    }
    let (started, waited) = (Instant::now(), supply.waited());
    let mut times = StepTimes::default();
    for _ in 0..of_updates(n_wanted.unwrap_or(N_MEASURED)) {
        let batch = supply.next()?;
        times.steps.time(|| trainer.step(&batch.views()))?;
    }
    let waited = supply.waited().saturating_sub(waited);
    times.waited = waited.as_secs_f64() / started.elapsed().as_secs_f64();
    Ok(times)
}

/// A training step that was traced.
struct TracedStep {
    is_update: bool,
    predicted: u64,
    moved: u64,
    trace: Trace,
}

impl TracedStep {
    /// Returns the shares of the time by categories of kernels.
    fn shares(&self) -> String {
        let share = |work: &KernelCategory| {
            format!("{} {:.1} %", work.name(), 100.0 * self.trace.share(*work))
        };
        KernelCategory::ALL.iter().map(share).collect::<Vec<_>>().join(", ")
    }

    /// Says which step of an update it is, if several steps share one.
    fn suffix(&self, tables: &Tables) -> &'static str {
        match (tables.accumulate, self.is_update) {
            (0 | 1, _) => "",
            (_, false) => ", while accumulating",
            (_, true) => ", while updating",
        }
    }
}

/// One of each kind of the steps of an update.
struct TracedUpdate {
    /// The first step, if it only accumulates gradients.
    first: Option<TracedStep>,
    last: TracedStep,
    /// The bytes that all steps moved.
    moved: u64,
}

/// Runs the steps of an update, and traces the first and the last one.
fn trace_update(
    trainer: &mut Trainer,
    supply: &mut Supply,
    tables: &Tables,
) -> Result<TracedUpdate, CommandError> {
    let n_accumulating = tables.accumulate.saturating_sub(1);
    let first = (n_accumulating > 0).then(|| trace_step(trainer, supply)).transpose()?;
    let mut moved = first.as_ref().map_or(0, |it| it.moved);
    for _ in 1..n_accumulating {
        trainer.step(&supply.next()?.views())?;
        moved += trainer.moved_bytes();
    }
    let last = trace_step(trainer, supply)?;
    moved += last.moved;
    Ok(TracedUpdate { first, last, moved })
}

fn trace_step(trainer: &mut Trainer, supply: &mut Supply) -> Result<TracedStep, CommandError> {
    trainer.queue(&supply.next()?.views())?;
    let (is_update, predicted) = (trainer.is_next_step_update(), trainer.bytes_of_next_step());
    let (_, trace) = trainer.trace_queued(None)?;
    Ok(TracedStep { is_update, predicted, moved: trainer.moved_bytes(), trace })
}

/// Batches of all epochs without end.
struct Supply {
    loader: DataLoader,
    epoch: u64,
    /// The waiting time in earlier epochs.
    waited: Duration,
}

impl Supply {
    fn next(&mut self) -> Result<Batch, CommandError> {
        if let Some(batch) = self.loader.next() {
            return Ok(batch?);
        }
        self.waited += self.loader.waited();
        self.epoch += 1;
        self.loader.start(self.epoch, 0);
        let batch = self.loader.next();
        Ok(batch
            .ok_or_else(|| CommandError::Failed("expected data, found no rows".to_owned()))??)
    }

    fn waited(&self) -> Duration {
        self.waited + self.loader.waited()
    }
}

/// Durations of a repeated operation in milliseconds; at least one.
#[derive(Default)]
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.0.push(started.elapsed().as_secs_f64() * 1e3);
        result
    }

    /// Returns the durations of `n` operations in a row, which are one update.
    fn sums_of(&self, n: u64) -> Self {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        Self(self.0.chunks(n).map(|it| it.iter().sum()).collect())
    }

    pub(super) fn per_second(&self) -> f64 {
        1e3 * self.0.len() as f64 / self.0.iter().sum::<f64>()
    }
}

/// The median and the minimum.
impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let (median, least, n) = (sorted[sorted.len() / 2], sorted[0], sorted.len());
        write!(f, "{median:.3} ms median, {least:.3} ms least, of {n}")
    }
}

/// Returns a line about the bytes that the host writes to the ranks for a batch of an entry.
pub(super) fn feeding(tables: &Tables, entry: usize, counted: u64) -> String {
    let each = readable_bytes(tables.fed_bytes_per_rank(entry));
    let predicted = tables.fed_bytes(entry);
    format!("{predicted} bytes per batch predicted, {counted} counted, {each} to each rank")
}

/// Returns a line about the memory of a program and of the process.
pub(super) fn memory(tables: &Tables, beside_plan: MemoryBesidePlan) -> String {
    let all = readable_bytes((tables.arena_bytes * tables.mesh.n_ranks()) as u64);
    format!("{}, {all} in all{}", memory_of_rank(tables, beside_plan), peak_memory())
}

/// Returns the memory of each rank: the plan's and, on GPUs, what is beside it.
pub(super) fn memory_of_rank(tables: &Tables, beside_plan: MemoryBesidePlan) -> String {
    let planned = readable_bytes(tables.arena_bytes as u64);
    match beside_plan.total() {
        0 => format!("{planned} per device"),
        _ => format!("{planned} per device, and beside this plan {beside_plan}"),
    }
}

/// Returns the peak memory of the process, where the system reports it.
fn peak_memory() -> String {
    let kilobytes = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    });
    kilobytes
        .map(|it| format!(", {} resident at most", readable_bytes(it * 1024)))
        .unwrap_or_default()
}
