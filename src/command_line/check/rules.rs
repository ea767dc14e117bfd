//! The first update of every optimizer, as a function of the gradient.

use std::time::Duration;

use crate::oracle::{Numbers, Oracle};

/// One element of a parameter: its value if it is decayed, its decrease in a step with a learning
/// rate of 1, and the derivative of the loss.
pub(super) struct Sample {
    /// The number of the parameter's group; `None` if it belongs to no group.
    pub(super) group: Option<usize>,
    value: f64,
    update: f64,
    pub(super) slope: f64,
}

/// A first update, besides the parameters after it.
pub(super) struct FirstUpdate<'a> {
    /// The steps whose gradients it uses.
    pub(super) steps: &'a [u64],
    /// The factor of gradient clipping.
    pub(super) clipping: f64,
    /// The parts of the parameters in it.
    pub(super) roles: &'a [Role],
}

/// The part of a parameter in an update.
pub(super) struct Role {
    pub(super) is_trained: bool,
    /// True if it may have weight decay.
    pub(super) is_decayed: bool,
    /// The number of its group; `None` if it belongs to no group.
    pub(super) group: Option<usize>,
    pub(super) learning_rate_factor: f64,
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
        let &Role { is_trained, is_decayed, group, learning_rate_factor } = &first.roles[parameter];
        if !is_trained {
            continue;
        }
        let before = oracle.parameters()[parameter].elements.clone();
        let updates: Vec<f64> =
            before.iter().zip(&after.elements).map(|(before, after)| before - after).collect();
        for element in elements(&updates, n_each) {
            let value = if is_decayed { before[element] } else { 0.0 };
            let slope = first.clipping * oracle.slope(parameter, element, first.steps);
            samples.push(Sample {
                group,
                value,
                update: updates[element] / learning_rate_factor,
                slope,
            });
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

/// The first update of an optimizer as a function of the gradient `g` and the parameter `p`;
/// `decay` is fitted to the samples.
pub(super) struct Rule {
    pub(super) name: &'static str,
    needs_state: bool,
    gradient_part: fn(&Sample, &Fit) -> f64,
}

/// Statistics of all samples.
pub(super) struct Fit {
    pub(super) factor: f64,
    /// Slopes below this may have either sign.
    least_slope: f64,
}

const RULES: &[Rule] = &[
    Rule { name: "the gradient", needs_state: false, gradient_part: |sample, _| sample.slope },
    Rule {
        // Nesterov's momentum m gives 1 + m.
        name: "a multiple of the gradient",
        needs_state: true,
        gradient_part: |sample, fit| fit.factor * sample.slope,
    },
    Rule {
        // Adam's first step is g / (|g| + eps). Where the gradient nearly vanishes, rounding leaves
        // only its magnitude.
        name: "the sign of the gradient",
        needs_state: true,
        gradient_part: |sample, fit| {
            if sample.slope.abs() < fit.least_slope { sample.update } else { sample.slope.signum() }
        },
    },
];

impl Fit {
    /// Returns the statistics of samples; `tolerance` is that of an update.
    pub(super) fn new(samples: &[&Sample], tolerance: f64) -> Self {
        let product = |size: fn(&Sample) -> f64| samples.iter().map(|it| size(it)).sum::<f64>();
        // The least-squares multiples of slope and value for the updates.
        let (squares, values) =
            (product(|it| it.slope * it.slope), product(|it| it.value * it.value));
        let mixed = product(|it| it.slope * it.value);
        let (of_slopes, of_values) =
            (product(|it| it.slope * it.update), product(|it| it.value * it.update));
        let determinant = squares * values - mixed * mixed;
        let factor = match determinant > 1e-9 * squares * values {
            true => (of_slopes * values - of_values * mixed) / determinant,
            false => of_slopes / squares.max(f64::MIN_POSITIVE),
        };
        Self { factor, least_slope: tolerance * largest(samples, |it| it.slope) }
    }

    /// Returns the first rule that holds, since later ones are weaker, or the nearest rule if none
    /// holds; with its weight decay and error.
    pub(super) fn rule(
        &self,
        samples: &[&Sample],
        has_state: bool,
        tolerance: f64,
    ) -> (&'static Rule, (f64, f64)) {
        let rules = RULES.iter().filter(|rule| has_state || !rule.needs_state);
        let fits: Vec<_> = rules.map(|rule| (rule, rule.fit(samples, self))).collect();
        let nearest = fits.iter().min_by(|left, right| left.1.1.total_cmp(&right.1.1));
        let best = fits.iter().find(|it| it.1.1 <= tolerance).or(nearest);
        *best.expect("the first rule needs no state")
    }
}

impl Rule {
    /// Returns the best weight decay and the largest remaining difference, relative to the largest
    /// update.
    fn fit(&self, samples: &[&Sample], fit: &Fit) -> (f64, f64) {
        let rest = |sample: &Sample| sample.update - (self.gradient_part)(sample, fit);
        let square: f64 = samples.iter().map(|it| it.value * it.value).sum();
        let product: f64 = samples.iter().map(|it| it.value * rest(it)).sum();
        let decay = if square > 0.0 { (product / square).max(0.0) } else { 0.0 };
        let error = |it: &Sample| (rest(it) - decay * it.value).abs();
        (decay, largest(samples, error) / largest(samples, |it| it.update).max(f64::MIN_POSITIVE))
    }
}

fn largest(samples: &[&Sample], size: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(|sample| size(sample).abs()).fold(0.0, f64::max)
}
