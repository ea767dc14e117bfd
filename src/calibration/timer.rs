//! The time of one repetition of a trial while all ranks run it.

use std::{sync::Arc, time::Instant};

use soybean_plan::{Mesh, Permutation, Precision, Shape, Strides};
use soybean_runtime::{Config, Error, Trainer, View};

use super::trial::Trial;

/// Measures trials on the ranks of a mesh.
pub(super) struct Timer {
    mesh: Mesh,
    precision: Precision,
    config: Config,
    /// The bytes of the tensors that a trial uses in turn, on each rank.
    footprint: u64,
    /// The times of a step without trials.
    steps: Times,
    /// The memory of the largest trial on each rank.
    pub(super) memory_bytes: usize,
    /// The devices of all ranks.
    pub(super) device_line: String,
}

/// A trial and its measured time.
pub(super) struct Measured {
    pub(super) trial: Trial,
    /// The measured times of one repetition.
    times: Times,
    /// The repetitions in a step; 1 before the first measurement.
    n_repetitions: usize,
}

impl Measured {
    pub(super) const fn new(trial: Trial) -> Self {
        Self { trial, times: Times(Vec::new()), n_repetitions: 1 }
    }

    /// Returns the name of the kind of kernel.
    pub(super) fn kind(&self) -> &'static str {
        self.trial.work().name
    }

    /// Returns the time of one repetition in seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.times.seconds()
    }
}

/// Measured times in seconds.
#[derive(Default)]
pub(super) struct Times(Vec<f64>);

impl Times {
    /// Repeats an operation, and adds the time of each repetition after the warm-up.
    pub(super) fn measure(
        &mut self,
        n_times: usize,
        mut work: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        for _ in 0..N_WARM_UP {
            work()?;
        }
        (0..n_times).try_for_each(|_| self.measure_once(&mut work))
    }

    /// Adds the time of an operation.
    pub(super) fn measure_once(
        &mut self,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let started = Instant::now();
        work()?;
        self.add(started.elapsed().as_secs_f64());
        Ok(())
    }

    /// Adds the time of a repetition.
    pub(super) fn add(&mut self, seconds: f64) {
        self.0.push(seconds);
    }

    /// Returns the median; infinity if nothing was measured.
    pub(super) fn seconds(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY)
    }
}

/// A measured step should take this long, so that the start of a step hardly counts.
const LONG_SECONDS: f64 = 3e-3;

/// The most repetitions in a step.
const MAX_REPETITIONS: usize = 1 << 14;

/// Steps before the measured ones.
pub(super) const N_WARM_UP: usize = 2;

/// Measured steps.
const N_STEPS: usize = 6;

/// Measured steps without trials, which are short.
const N_EMPTY_STEPS: usize = 100;

impl Timer {
    pub(super) fn new(
        mesh: Mesh,
        precision: Precision,
        config: Config,
        footprint: u64,
    ) -> Result<Self, Error> {
        let (device_line, steps) = (String::new(), Times::default());
        let mut timer =
            Self { mesh, precision, config, footprint, steps, memory_bytes: 0, device_line };
        timer.measure_step()?;
        Ok(timer)
    }

    /// Measures a step without kernels: the time of its start and of its end.
    pub(super) fn measure_step(&mut self) -> Result<(), Error> {
        let (mut trainer, _) = self.start(&nothing(), 0)?;
        self.device_line = trainer.device_line();
        self.steps.measure(N_EMPTY_STEPS, || trainer.step(&[]).map(drop))
    }

    /// Returns the time of a step without trials in seconds.
    pub(super) fn step_seconds(&self) -> f64 {
        self.steps.seconds()
    }

    /// Measures a trial, besides what was measured of it before.
    pub(super) fn measure(&mut self, measured: &mut Measured) -> Result<(), Error> {
        loop {
            let n_repetitions = measured.n_repetitions;
            let (mut trainer, batch) = self.start(&measured.trial, n_repetitions)?;
            let views: Vec<View<'_>> = batch.iter().map(|it| View::I32(it)).collect();
            let mut spent = Times::default();
            spent.measure(1, || trainer.step(&views).map(drop))?;
            let is_short = spent.seconds() < LONG_SECONDS / 2.0;
            if !trainer.any(is_short)? || n_repetitions >= MAX_REPETITIONS {
                spent.measure(N_STEPS, || trainer.step(&views).map(drop))?;
                let start = self.step_seconds();
                // The start of a step is at most half of a step with trials.
                let of_one = |spent: &f64| (spent - start).max(spent / 2.0) / n_repetitions as f64;
                measured.times.0.extend(spent.0.iter().map(of_one));
                return Ok(());
            }
            let missing = (LONG_SECONDS / spent.seconds()).max(2.0);
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
        let (program, batch) =
            trial.program(self.mesh, self.precision, self.footprint, n_repetitions);
        self.memory_bytes = self.memory_bytes.max(program.tables.arena_bytes);
        Ok((Trainer::new_shared(Arc::new(program), self.config.clone())?, batch))
    }
}

/// Returns a trial that is not run.
fn nothing() -> Trial {
    let kernel = Permutation { extents: Shape::new(&[1]), input: Strides::new(&[1]) };
    Trial::new(kernel, &[1], &[1])
}
