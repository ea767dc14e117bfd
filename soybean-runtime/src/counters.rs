//! The rules by which a trainer's counters advance, and by which it chooses between both kinds of
//! steps.

use soybean_plan::{NonFinite, Tables};

use crate::{Counters, Error, ErrorKind};

/// The number of updates without a skipped step after which the loss scale is doubled, as in
/// `PyTorch`'s `GradScaler`.
const UPDATES_UNTIL_DOUBLED: u64 = 2000;

/// The largest count, so that doubles have all counts, and sums of them do not overflow.
const MAX_COUNT: u64 = 1 << 53;

/// The loss scales: normal numbers whose inverses are exact if they are powers of 2.
const LOSS_SCALES: std::ops::RangeInclusive<f32> = f32::MIN_POSITIVE..=2.0 / f32::MIN_POSITIVE;

/// Checks that the numbers are those of a trainer of this model.
pub(crate) fn check_counters(counters: Counters, tables: &Tables) -> Result<(), Error> {
    let Counters { n_steps, n_updates, n_updates_by, n_accumulated, loss_scale, n_good } = counters;
    let fault = |message: String| Err(Error::new(ErrorKind::Choice, message));
    let largest = n_updates_by.0.into_iter().max().unwrap_or(0);
    let counts = [
        ("n_steps", n_steps, MAX_COUNT),
        ("n_updates", n_updates, MAX_COUNT),
        ("n_updates_by", largest, MAX_COUNT),
        // As many steps share an update.
        ("n_accumulated", n_accumulated, tables.accumulate.max(1) - 1),
        ("n_good", n_good, UPDATES_UNTIL_DOUBLED - 1),
    ];
    if let Some((name, found, most)) = counts.into_iter().find(|it| it.1 > it.2) {
        return fault(format!("the counter `{name}` must be from 0 to {most}, found {found}"));
    }
    if !LOSS_SCALES.contains(&loss_scale) {
        let (least, most) = (LOSS_SCALES.start(), LOSS_SCALES.end());
        return fault(format!(
            "the counter `loss_scale` must be from {least:e} to {most:e}, found {loss_scale:?}"
        ));
    }
    Ok(())
}

/// Returns true if the next step updates the parameters, unless it is skipped.
pub(crate) const fn is_update(counters: Counters, tables: &Tables) -> bool {
    counters.n_accumulated + 1 >= tables.accumulate
}

/// Returns the number of updates so far of the parameters that an entry trains.
pub(crate) fn n_updates_of(counters: Counters, tables: &Tables, entry: usize) -> u64 {
    match place_of(tables, entry) {
        Some(place) => counters.n_updates_by.0[place],
        None => counters.n_updates,
    }
}

/// Returns the place of an entry's updates in [`Counters::n_updates_by`]; none if the model has one
/// entry.
fn place_of(tables: &Tables, entry: usize) -> Option<usize> {
    let training = tables.entries[entry].training.as_ref()?;
    (tables.entries.len() > 1).then_some(training.trains_like)
}

/// Returns the counters after a step of an entry whose gradients were finite.
pub(crate) fn after_step(counters: Counters, tables: &Tables, entry: usize) -> Counters {
    let n_steps = counters.n_steps + 1;
    if !is_update(counters, tables) {
        return Counters { n_steps, n_accumulated: counters.n_accumulated + 1, ..counters };
    }
    let mut next =
        Counters { n_steps, n_updates: counters.n_updates + 1, n_accumulated: 0, ..counters };
    if let Some(place) = place_of(tables, entry) {
        next.n_updates_by.0[place] += 1;
    }
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
