//! The time of one repetition of a trial while all ranks run it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use soybean_plan::{Mesh, Permutation, Precision, Shape, Strides};
use soybean_runtime::{Config, Error, Trainer, View};

use super::trial::Trial;

/// Measures trials on the ranks of a mesh.
pub(super) struct Timer {
    mesh: Mesh,
    precision: Precision,
    config: Config,
    /// The time of a step without trials.
    pub(super) step_seconds: f64,
    /// The memory of the largest trial on each rank.
    pub(super) memory_bytes: usize,
    /// The devices of all ranks.
    pub(super) device_line: String,
}

/// A measured step should take this long, so that the start of a step hardly counts.
const LONG: Duration = Duration::from_millis(4);

/// The most repetitions in a step.
const MAX_REPETITIONS: usize = 1 << 14;

/// Steps before the measured ones.
const N_WARM_UP: usize = 2;

impl Timer {
    pub(super) fn new(mesh: Mesh, precision: Precision, config: Config) -> Result<Self, Error> {
        let device_line = String::new();
        let mut timer =
            Self { mesh, precision, config, step_seconds: 0.0, memory_bytes: 0, device_line };
        // One step without kernels takes the time of its start and of its end.
        let (mut trainer, _) = timer.start(&nothing(), 0)?;
        timer.device_line = trainer.device_line();
        timer.step_seconds = least(&mut trainer, &[], 1000)?.as_secs_f64();
        Ok(timer)
    }

    /// Returns the least time of one repetition, in seconds.
    pub(super) fn seconds(&mut self, trial: &Trial) -> Result<f64, Error> {
        let mut n_repetitions = 1;
        loop {
            let (mut trainer, batch) = self.start(trial, n_repetitions)?;
            let views: Vec<View<'_>> = batch.iter().map(|it| View::I32(it)).collect();
            let first = least(&mut trainer, &views, 2)?;
            let is_short = trainer.any(first < LONG)?;
            if !is_short || n_repetitions >= MAX_REPETITIONS {
                let n_steps = if trainer.any(first < 8 * LONG)? { 12 } else { 3 };
                let measured = least(&mut trainer, &views, n_steps)?.min(first).as_secs_f64();
                let spent = (measured - self.step_seconds).max(measured / 2.0);
                return Ok(spent / n_repetitions as f64);
            }
            let missing = LONG.as_secs_f64() * 1.25 / first.as_secs_f64();
            // All processes repeat as often.
            let wanted = (n_repetitions as f64 * missing.max(1.5)).ceil().to_string();
            let wanted = trainer.text_of_first(&wanted)?.parse().unwrap_or(MAX_REPETITIONS);
            n_repetitions = wanted.min(MAX_REPETITIONS);
        }
    }

    fn start(
        &mut self,
        trial: &Trial,
        n_repetitions: usize,
    ) -> Result<(Trainer, Vec<Vec<i32>>), Error> {
        let (program, batch) = trial.program(self.mesh, self.precision, n_repetitions);
        self.memory_bytes = self.memory_bytes.max(program.tables.arena_bytes);
        Ok((Trainer::new_shared(Arc::new(program), self.config.clone())?, batch))
    }
}

/// Returns a trial that is not run.
fn nothing() -> Trial {
    let kernel = Permutation { extents: Shape::new(&[1]), input: Strides::new(&[1]) };
    Trial::new(kernel, &[1], &[1])
}

/// Returns the least time of some steps.
fn least(trainer: &mut Trainer, batch: &[View<'_>], n_steps: usize) -> Result<Duration, Error> {
    for _ in 0..N_WARM_UP {
        trainer.step(batch)?;
    }
    let mut least = Duration::MAX;
    for _ in 0..n_steps {
        let started = Instant::now();
        trainer.step(batch)?;
        least = least.min(started.elapsed());
    }
    Ok(least)
}
