//! Scalars of a step, such as the learning rate.

use crate::random::mixed;

/// A scalar whose value is known only when a step runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunScalar {
    /// The learning rate.
    LearningRate,
    /// `1 - base^t` at the `t`-th update, counted from 1: the bias correction of Adam.
    OneMinusPower {
        /// The base, one of Adam's betas.
        base: f64,
    },
    /// The number of the update, counted from 1.
    UpdateNumber,
    /// A pseudorandom number in `[0, 1)` of 24 bits: a function of the seed and the step, see
    /// [`RunScalar::noise`].
    Noise,
    /// The factor of the loss before gradients are taken. Steps that share an update have the same.
    LossScale,
    /// 1 in a step on a batch, and 0 in an update by the gradients of the steps before it alone.
    HasBatch,
    /// 1 over the number of steps that share the update.
    InverseSteps,
}

impl RunScalar {
    /// Returns the value of [`RunScalar::Noise`].
    #[must_use]
    pub const fn noise(seed: u64, step: u64) -> f32 {
        (mixed(mixed(seed) ^ step) >> 40) as f32 / (1_u32 << 24) as f32
    }
}
