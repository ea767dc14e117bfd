//! `bench`: measures training steps, their parts, moved bytes and memory.

use std::{
    fmt, fs,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use soybean_plan::{Tables, readable_bytes};
use soybean_runtime::{
    KernelCategory, Trainer,
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
    let n_steps = options.n_measured.unwrap_or(N_MEASURED);
    let (times, waited) = measure_steps(&mut trainer, &mut supply, n_steps)?;
    trainer.queue(&supply.next()?.views())?;
    let predicted = trainer.bytes_of_next_step();
    let (_, trace) = trainer.trace_queued(None)?;
    if let Some(file) = &run.trace {
        write_trace(&trace, &model.plan, trainer.process(), file)?;
    }
    writeln!(output, "model             {}, {}", tables.name, trainer.device_line())?;
    writeln!(output, "steps per second  {:.2}", times.per_second())?;
    writeln!(output, "step              {times} steps")?;
    let shares: Vec<String> = KernelCategory::ALL
        .iter()
        .map(|work| format!("{} {:.1} %", work.name(), 100.0 * trace.share(*work)))
        .collect();
    writeln!(output, "time              {}", shares.join(", "))?;
    writeln!(
        output,
        "data              {:.2} % of the time waited for, {} for batches",
        100.0 * waited,
        readable_bytes(supply.loader.n_bytes() as u64)
    )?;
    writeln!(
        output,
        "bytes per step    {} predicted, {} counted",
        predicted,
        trainer.moved_bytes()
    )?;
    if tables.accumulate > 1 {
        writeln!(
            output,
            "bytes per update  {} predicted, in {} steps",
            tables.measured_bytes(),
            tables.accumulate
        )?;
    }
    writeln!(output, "feeding           {}", feeding(tables, trainer.fed_bytes()))?;
    writeln!(output, "memory            {}", memory(tables))?;
    Ok(())
}

/// Returns the times of training steps, and the fraction of the time spent waiting for data.
fn measure_steps(
    trainer: &mut Trainer,
    supply: &mut Supply,
    n_steps: u64,
) -> Result<(Times, f64), CommandError> {
    for _ in 0..N_WARM_UP {
        trainer.step(&supply.next()?.views())?;
    }
    let (started, waited) = (Instant::now(), supply.waited());
    let mut times = Times::default();
    for _ in 0..n_steps {
        let batch = supply.next()?;
        times.time(|| trainer.step(&batch.views()))?;
    }
    let waited = supply.waited().saturating_sub(waited);
    Ok((times, waited.as_secs_f64() / started.elapsed().as_secs_f64()))
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

/// Returns a line about the bytes that the host writes to the ranks for a batch.
pub(super) fn feeding(tables: &Tables, counted: u64) -> String {
    let each = readable_bytes(tables.fed_bytes_per_rank());
    format!(
        "{} bytes per batch predicted, {counted} counted, {each} to each rank",
        tables.fed_bytes()
    )
}

/// Returns a line about the memory of a program and of the process.
pub(super) fn memory(tables: &Tables) -> String {
    let per_rank = readable_bytes(tables.arena_bytes as u64);
    let all = readable_bytes((tables.arena_bytes * tables.mesh.n_ranks()) as u64);
    format!("{per_rank} per device, {all} in all{}", peak_memory())
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
