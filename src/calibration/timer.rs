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

/// A trial and its measured time.
pub(super) struct Measured {
    pub(super) trial: Trial,
    /// The least time of one repetition so far, in seconds.
    pub(super) seconds: f64,
    /// The repetitions in a step; 1 before the first measurement.
    n_repetitions: usize,
}

impl Measured {
    pub(super) const fn new(trial: Trial) -> Self {
        Self { trial, seconds: f64::INFINITY, n_repetitions: 1 }
    }
}

/// A measured step should take this long, so that the start of a step hardly counts.
const LONG: Duration = Duration::from_millis(3);

/// The most repetitions in a step.
const MAX_REPETITIONS: usize = 1 << 14;

/// Steps before the measured ones.
const N_WARM_UP: usize = 2;

/// Measured steps.
const N_STEPS: usize = 6;

/// Measured steps without trials, which are short.
const N_EMPTY_STEPS: usize = 100;

impl Timer {
    pub(super) fn new(mesh: Mesh, precision: Precision, config: Config) -> Result<Self, Error> {
        let (device_line, step_seconds) = (String::new(), f64::INFINITY);
        let mut timer =
            Self { mesh, precision, config, step_seconds, memory_bytes: 0, device_line };
        timer.measure_step()?;
        Ok(timer)
    }

    /// Measures a step without kernels: the time of its start and of its end.
    pub(super) fn measure_step(&mut self) -> Result<(), Error> {
        let (mut trainer, _) = self.start(&nothing(), 0)?;
        self.device_line = trainer.device_line();
        let seconds = least(&mut trainer, &[], N_EMPTY_STEPS)?.as_secs_f64();
        self.step_seconds = self.step_seconds.min(seconds);
        Ok(())
    }

    /// Measures a trial. Its time becomes the least of all measurements.
    pub(super) fn measure(&mut self, measured: &mut Measured) -> Result<(), Error> {
        loop {
            let n_repetitions = measured.n_repetitions;
            let (mut trainer, batch) = self.start(&measured.trial, n_repetitions)?;
            let views: Vec<View<'_>> = batch.iter().map(|it| View::I32(it)).collect();
            let spent = least(&mut trainer, &views, 1)?;
            let is_short = trainer.any(spent < LONG / 2)?;
            if !is_short || n_repetitions >= MAX_REPETITIONS {
                let spent = least(&mut trainer, &views, N_STEPS)?.min(spent).as_secs_f64();
                // The start of a step is at most half of a step with trials.
                let spent = (spent - self.step_seconds).max(spent / 2.0);
                measured.seconds = measured.seconds.min(spent / n_repetitions as f64);
                return Ok(());
            }
            let missing = (LONG.as_secs_f64() / spent.as_secs_f64()).max(2.0);
            // All processes repeat as often.
            let wanted = (n_repetitions as f64 * missing).ceil().to_string();
            let wanted = trainer.text_of_first(&wanted)?.parse().unwrap_or(MAX_REPETITIONS);
            measured.n_repetitions = wanted.min(MAX_REPETITIONS);
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
