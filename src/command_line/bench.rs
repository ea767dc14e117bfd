//! `bench`: how long a training step takes, where the time goes, what it moves and holds.

use std::{fs, io::Write, sync::Arc, time::Instant};

use soybean_explain::readable_bytes;
use soybean_runtime::{Trainer, Work, data::Dataset};

use super::{Failure, Subject, flags::Options};
use crate::run::{first, traced};

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
    let batch = first("training", dataset, &tables.inputs)?;
    let batch = batch.views();
    let mut trainer = Trainer::new(subject.model, options.run.trainer.clone())?;
    for _ in 0..N_WARM_UP_STEPS {
        trainer.step(&batch)?;
    }
    let mut milliseconds = Vec::new();
    for _ in 0..options.run.steps.unwrap_or(N_STEPS) {
        let started = Instant::now();
        trainer.step(&batch)?;
        milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
    }
    trainer.queue(&batch)?;
    let trace = match &options.run.trace {
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
        "bytes per step    {} predicted, {} counted",
        tables.train_bytes,
        trainer.moved_bytes()
    )?;
    let per_rank = readable_bytes(tables.arena_bytes as u64);
    let all = readable_bytes((tables.arena_bytes * tables.mesh.n_ranks()) as u64);
    writeln!(output, "memory            {per_rank} per device, {all} in all{}", resident())?;
    Ok(())
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
