//! The mode of a model's function: a training step or an evaluation.

use std::cell::Cell;

use soybean_plan::RunScalar;

#[derive(Clone, Copy)]
struct Training {
    noise: f32,
    n_noises: u32,
}

thread_local! {
    static TRAINING: Cell<Option<Training>> = const { Cell::new(None) };
}

/// Runs `compute` as the `step`-th training step, counted from 1, under this seed: `dropout` drops
/// the elements that a trainer drops, and `batch_norm` uses the statistics of the batch. Elsewhere
/// functions compute evaluations.
pub fn in_training<R>(seed: u64, step: u64, compute: impl FnOnce() -> R) -> R {
    let training = Training { noise: RunScalar::noise(seed, step), n_noises: 0 };
    let _restore = Restore(TRAINING.replace(Some(training)));
    compute()
}

pub(super) fn is_training() -> bool {
    TRAINING.get().is_some()
}

/// Returns the numbers of the step and of the next call that reads noise, in training.
pub(super) fn next_noise() -> Option<(f32, u32)> {
    let training = TRAINING.get()?;
    TRAINING.set(Some(Training { n_noises: training.n_noises + 1, ..training }));
    Some((training.noise, training.n_noises))
}

/// Restores the outer state, also after a panic.
struct Restore(Option<Training>);

impl Drop for Restore {
    fn drop(&mut self) {
        TRAINING.set(self.0);
    }
}
