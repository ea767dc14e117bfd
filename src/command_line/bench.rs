//! `bench`: how long a training step takes, where the time goes, what it moves and holds.

use std::{
    fs,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use soybean_explain::readable_bytes;
use soybean_runtime::{
    Trainer, Work,
    data::{Batch, DataLoader, Dataset, Last, LoaderOptions},
};

use super::{Failure, Subject, flags::Options};
use crate::run::{batch_size, loader, traced};

const N_WARM_UP_STEPS: usize = 3;

/// The steps that are measured, unless a flag says otherwise.
const N_STEPS: u64 = 20;

pub(super) fn bench(
    subject: &Subject,
    options: &Options,
    dataset: &Arc<dyn Dataset>,
    output: &mut dyn Write,
) -> Result<(), Failure> {
    let tables = subject.model.tables();
    let run = &options.run;
    let training = LoaderOptions::training(batch_size(&tables.inputs)?, run.trainer.seed);
    let training = LoaderOptions { last: Last::Pad, ..training };
    let loader = loader("training", dataset, &tables.inputs, training)?;
    let mut supply = Supply { loader, epoch: 0, waited: Duration::ZERO };
    let mut trainer = Trainer::new(subject.model, run.trainer.clone())?;
    let n_steps = run.steps.unwrap_or(N_STEPS);
    let (milliseconds, waited) = measured(&mut trainer, &mut supply, n_steps)?;
    trainer.queue(&supply.next()?.views())?;
    let trace = match &run.trace {
        Some(file) => traced(&mut trainer, None, file)?.1,
        None => trainer.trace_queued(None)?.1,
    };
    let mean = milliseconds.iter().sum::<f64>() / milliseconds.len() as f64;
    writeln!(output, "model             {}, {}", tables.name, trainer.device_line())?;
    writeln!(output, "steps per second  {:.2}", 1e3 / mean)?;
    writeln!(
        output,
        "step              {:.3} ms median, {:.3} ms least, of {} steps",
        median(&milliseconds),
        least(&milliseconds),
        milliseconds.len()
    )?;
    let shares: Vec<String> = Work::ALL
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
        tables.train_bytes,
        trainer.moved_bytes()
    )?;
    let per_rank = readable_bytes(tables.arena_bytes as u64);
    let all = readable_bytes((tables.arena_bytes * tables.mesh.n_ranks()) as u64);
    writeln!(output, "memory            {per_rank} per device, {all} in all{}", resident())?;
    Ok(())
}

/// How long each of some steps takes, and the share of the time in which they waited for data.
fn measured(
    trainer: &mut Trainer,
    supply: &mut Supply,
    n_steps: u64,
) -> Result<(Vec<f64>, f64), Failure> {
    for _ in 0..N_WARM_UP_STEPS {
        trainer.step(&supply.next()?.views())?;
    }
    let (started, waited) = (Instant::now(), supply.waited());
    let mut milliseconds = Vec::new();
    for _ in 0..n_steps {
        let batch = supply.next()?;
        let started = Instant::now();
        trainer.step(&batch.views())?;
        milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let waited = supply.waited().saturating_sub(waited);
    Ok((milliseconds, waited.as_secs_f64() / started.elapsed().as_secs_f64()))
}

/// Batches without end.
struct Supply {
    loader: DataLoader,
    epoch: u64,
    /// The time that earlier epochs were waited for.
    waited: Duration,
}

impl Supply {
    fn next(&mut self) -> Result<Batch, Failure> {
        if let Some(batch) = self.loader.next() {
            return Ok(batch?);
        }
        self.waited += self.loader.waited();
        self.epoch += 1;
        self.loader.start(self.epoch, 0);
        let batch = self.loader.next();
        Ok(batch.ok_or_else(|| Failure::Work("expected data, found no rows".to_owned()))??)
    }

    fn waited(&self) -> Duration {
        self.waited + self.loader.waited()
    }
}

/// The least of some times.
pub(super) fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The time that half of them do not pass.
pub(super) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The most memory that the process has held, where the system tells it.
pub(super) fn resident() -> String {
    let kilobytes = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    });
    kilobytes
        .map(|it| format!(", {} resident at most", readable_bytes(it * 1024)))
        .unwrap_or_default()
}
