//! The rules by which a trainer's counters advance, and by which it chooses between both kinds of
//! steps.

use soybean_plan::{NonFinite, Tables};

use crate::Counters;

/// The number of updates without a skipped step after which the loss scale is doubled, as in
/// `PyTorch`'s `GradScaler`.
const UPDATES_UNTIL_DOUBLED: u64 = 2000;

/// Returns true if the next step updates the parameters, unless it is skipped.
pub(crate) const fn is_update(counters: Counters, tables: &Tables) -> bool {
    counters.n_accumulated + 1 >= tables.accumulate
}

/// Returns the counters after a step whose gradients were finite.
pub(crate) fn after_step(counters: Counters, tables: &Tables) -> Counters {
    let n_steps = counters.n_steps + 1;
    if !is_update(counters, tables) {
        return Counters { n_steps, n_accumulated: counters.n_accumulated + 1, ..counters };
    }
    let next =
        Counters { n_steps, n_updates: counters.n_updates + 1, n_accumulated: 0, ..counters };
    if tables.non_finite != NonFinite::Scale {
        return next;
    }
    // The scale and its inverse stay normal numbers.
    let doubled = (counters.loss_scale * 2.0).min(1.0 / f32::MIN_POSITIVE);
    match counters.n_good + 1 {
        n_good if n_good < UPDATES_UNTIL_DOUBLED => Counters { n_good, ..next },
        _ => Counters { n_good: 0, loss_scale: doubled, ..next },
    }
}

/// Returns the counters after a step that was skipped. If several steps share an update, a step
/// whose loss is not finite changes nothing, and another one takes its place. Otherwise the total
/// of the gradients is not finite, and is dropped. Only then does the loss scale change, because
/// the sum of gradients has it.
pub(crate) fn after_skip(counters: Counters, tables: &Tables, loss: f32) -> Counters {
    let next = Counters { n_steps: counters.n_steps + 1, ..counters };
    if tables.accumulate > 1 && !loss.is_finite() {
        return next;
    }
    let next = Counters { n_accumulated: 0, ..next };
    if tables.non_finite != NonFinite::Scale {
        return next;
    }
    let halved = (counters.loss_scale * 0.5).max(f32::MIN_POSITIVE);
    Counters { n_good: 0, loss_scale: halved, ..next }
}
