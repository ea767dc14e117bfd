//! Whether a model's function computes a training step or an evaluation.

use std::cell::Cell;

use soybean_plan::RunScalar;

#[derive(Clone, Copy)]
struct Training {
    noise: f32,
    n_dropouts: u32,
}

thread_local! {
    static TRAINING: Cell<Option<Training>> = const { Cell::new(None) };
}

/// Runs `compute` as the `step`-th training step, counted from 1, under this seed: `dropout` drops what a trainer drops then, and `batch_norm` uses the
/// statistics of the batch. Outside, functions compute evaluations.
pub fn in_training<R>(seed: u64, step: u64, compute: impl FnOnce() -> R) -> R {
    let training = Training { noise: RunScalar::noise(seed, step), n_dropouts: 0 };
    let _restore = Restore(TRAINING.replace(Some(training)));
    compute()
}

pub(super) fn is_training() -> bool {
    TRAINING.get().is_some()
}

/// In training, the number of the step and that of the next dropout.
pub(super) fn next_dropout() -> Option<(f32, u32)> {
    let training = TRAINING.get()?;
    TRAINING.set(Some(Training { n_dropouts: training.n_dropouts + 1, ..training }));
    Some((training.noise, training.n_dropouts))
}

/// Puts the outer state back, after a panic too.
struct Restore(Option<Training>);

impl Drop for Restore {
    fn drop(&mut self) {
        TRAINING.set(self.0);
    }
}
