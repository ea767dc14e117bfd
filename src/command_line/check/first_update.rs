//! The first update of parameters, sampled, beside that of the optimizer's definition.

use std::time::Duration;

use soybean_plan::Shape;

use crate::oracle::{Numbers, Oracle};

/// One element of a parameter.
pub(super) struct Sample {
    /// The number of the parameter.
    pub(super) parameter: usize,
    pub(super) value: f64,
    /// Its decrease in a step with a learning rate of 1.
    pub(super) update: f64,
    /// The derivative of the loss, clipped.
    pub(super) slope: f64,
}

/// A first update, besides the parameters after it.
pub(super) struct FirstUpdate<'a> {
    /// The steps whose gradients it uses.
    pub(super) steps: &'a [u64],
    /// The factor of gradient clipping.
    pub(super) clipping: f64,
    /// The parts of the parameters in it.
    pub(super) roles: &'a [Role<'a>],
}

/// The part of a parameter in an update.
pub(super) struct Role<'a> {
    pub(super) name: &'a str,
    pub(super) shape: Shape,
    pub(super) is_trained: bool,
    /// The number of its group; `None` if it belongs to no group.
    pub(super) group: Option<usize>,
}

/// Samples each parameter: the element with the largest update, and evenly spaced others, as many
/// as a few seconds allow.
pub(super) fn sample(
    oracle: &mut Oracle,
    after: &[Numbers],
    first: &FirstUpdate<'_>,
    forward_time: Duration,
) -> Vec<Sample> {
    const SECONDS: f64 = 8.0;
    let seconds_each = 2.0 * first.steps.len() as f64 * forward_time.as_secs_f64();
    let n_affordable = SECONDS / seconds_each.max(1e-6);
    let n_each = (1..16).rev().find(|n| (n * after.len()) as f64 <= n_affordable).unwrap_or(1);
    let mut samples = Vec::new();
    for (parameter, after) in after.iter().enumerate() {
        if !first.roles[parameter].is_trained {
            continue;
        }
        let before = oracle.parameters()[parameter].elements.clone();
        let updates: Vec<f64> =
            before.iter().zip(&after.elements).map(|(before, after)| before - after).collect();
        for element in elements(&updates, n_each) {
            let slope = first.clipping * oracle.slope(parameter, element, first.steps);
            let (value, update) = (before[element], updates[element]);
            samples.push(Sample { parameter, value, update, slope });
        }
    }
    samples
}

fn elements(updates: &[f64], n_wanted: usize) -> Vec<usize> {
    let by_size = |i: &usize, j: &usize| updates[*i].abs().total_cmp(&updates[*j].abs());
    let largest = (0..updates.len()).max_by(by_size);
    let n_spread = (n_wanted - 1).min(updates.len());
    let spread = (0..n_spread).map(|index| (2 * index + 1) * updates.len() / (2 * n_spread));
    let mut elements: Vec<usize> = largest.into_iter().chain(spread).collect();
    elements.sort_unstable();
    elements.dedup();
    elements
}

/// Returns the largest difference of updates from those that `expected` gives for an element's
/// parameter, value and slope, relative to the largest update.
///
/// Gradients may differ by `tolerance` of the largest one, since they are rounded. Where `expected`
/// gives nothing, the update must have the sign of the gradient.
pub(super) fn difference(
    samples: &[&Sample],
    tolerance: f64,
    expected: impl Fn(usize, (f64, f64)) -> Option<f64>,
) -> f64 {
    let margin = tolerance * largest(samples, |it| it.slope);
    let size = largest(samples, |it| it.update).max(f64::MIN_POSITIVE);
    // Updates do not decrease with the gradient.
    let bound = |it: &Sample, margin: f64| expected(it.parameter, (it.value, it.slope + margin));
    let error = |it: &Sample| match (bound(it, -margin), bound(it, margin)) {
        (Some(low), Some(high)) => (low - it.update).max(it.update - high).max(0.0),
        _ if it.slope.abs() > margin && it.slope * it.update <= 0.0 => size,
        _ => 0.0,
    };
    largest(samples, error) / size
}

fn largest(samples: &[&Sample], size: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(|sample| size(sample).abs()).fold(0.0, f64::max)
}
