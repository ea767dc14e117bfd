//! `check`: the generated trainer against the model's own function.
//!
//! Loss and outputs are compared directly. The gradients cannot be seen from outside, so the first update is compared with finite
//! differences: from fresh optimiser state every optimiser's first update is a known function of the gradient.

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use soybean_plan::Precision;
use soybean_runtime::{Config, Trainer, data::Dataset};

use super::{
    Failure, Subject,
    flags::Options,
    oracle::{Numbers, Oracle},
};
use crate::run::first;

/// How far numbers may be from the function's, which are double, relative to the largest of them.
struct Tolerance {
    /// Of losses and outputs.
    result: f64,
    /// Of updates: differences of parameters in single precision, after as many roundings again as the results.
    update: f64,
}

impl Tolerance {
    const fn of(precision: Precision) -> Self {
        match precision {
            // Some thousand terms summed in another order.
            Precision::F32 => Self { result: 1e-4, update: 1e-3 },
            // Operands are off by 2^-11, and the deepest networks have some dozen products one after another.
            Precision::Tf32 => Self { result: 5e-3, update: 2e-2 },
            // All tensors are off by 2^-9.
            Precision::Bf16 => Self { result: 2e-2, update: 8e-2 },
        }
    }
}

pub(super) fn check(
    subject: &Subject,
    options: &Options,
    dataset: &Arc<dyn Dataset>,
    output: &mut dyn Write,
) -> Result<(), Failure> {
    let tables = subject.model.tables();
    let tolerance = Tolerance::of(tables.precision);
    let mut report = Report { output, tolerance, n_checks: 0, n_failed: 0 };
    let batch = first("training", dataset, &tables.inputs)?;
    let batch = batch.views();
    // With a learning rate of 1 the difference of the parameters is the update itself.
    let mut trainer =
        Trainer::new(subject.model, Config { learning_rate: 1.0, ..options.run.trainer.clone() })?;
    let before = numbers(&mut trainer)?;
    let started = Instant::now();
    let mut oracle = Oracle::new(subject, &batch, before, options.run.trainer.seed);
    let expected = oracle.evaluation();
    let forward_time = started.elapsed();

    let evaluation = trainer.evaluate(&batch)?;
    report.same_bytes("bytes of an evaluation", tables.evaluate_bytes, trainer.moved_bytes())?;
    report.same("loss of an evaluation", &expected[0].elements, &[evaluation.loss])?;
    for (index, (array, numbers)) in evaluation.outputs.iter().zip(&expected[1..]).enumerate() {
        let name = tables.outputs.get(index + 1).map_or("output", |output| &output.name);
        report.same(&format!("output `{name}`"), &numbers.elements, &array.data)?;
    }

    let loss = trainer.step(&batch)?;
    report.same_bytes("bytes of a training step", tables.train_bytes, trainer.moved_bytes())?;
    report.same("loss of a training step", &[oracle.training_loss()], &[loss])?;
    let after = numbers(&mut trainer)?;
    let is_trained: Vec<bool> = tables.parameters.iter().map(|it| it.is_trained).collect();
    let samples = sample(&mut oracle, &after, &is_trained, forward_time);
    report.update(&samples, !tables.states.is_empty())?;
    report.conclude()
}

fn numbers(trainer: &mut Trainer) -> Result<Vec<Numbers>, Failure> {
    Ok(trainer.parameters()?.iter().map(|(_, array)| Numbers::of_array(array)).collect())
}

/// One element of a parameter: its value, what a step took off it, and the derivative of the loss by it.
struct Sample {
    value: f64,
    update: f64,
    slope: f64,
}

/// From each parameter the element with the largest update, and others evenly spread; as many as some seconds allow.
fn sample(
    oracle: &mut Oracle,
    after: &[Numbers],
    is_trained: &[bool],
    forward_time: Duration,
) -> Vec<Sample> {
    const SECONDS: f64 = 8.0;
    let n_affordable = SECONDS / (2.0 * forward_time.as_secs_f64()).max(1e-6);
    let n_each = (1..16).rev().find(|n| (n * after.len()) as f64 <= n_affordable).unwrap_or(1);
    let mut samples = Vec::new();
    for (parameter, after) in after.iter().enumerate().filter(|it| is_trained[it.0]) {
        let before = oracle.parameters()[parameter].elements.clone();
        let updates: Vec<f64> =
            before.iter().zip(&after.elements).map(|(before, after)| before - after).collect();
        for element in elements(&updates, n_each) {
            let slope = oracle.slope(parameter, element);
            samples.push(Sample { value: before[element], update: updates[element], slope });
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

/// What the first update of an optimiser is, of the gradient `g` and the parameter `p`; `decay` is fitted to the samples.
struct Rule {
    name: &'static str,
    needs_state: bool,
    gradient_part: fn(&Sample, &Fit) -> f64,
}

struct Fit {
    factor: f64,
    /// Below this, a slope may have either sign.
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
        // Adam's first step is g / (|g| + eps); where the gradient nearly vanishes, rounding leaves no more than its size.
        name: "the sign of the gradient",
        needs_state: true,
        gradient_part: |sample, fit| {
            if sample.slope.abs() < fit.least_slope { sample.update } else { sample.slope.signum() }
        },
    },
];

impl Rule {
    /// The weight decay that fits best, and the largest difference that is left, relative to the largest update.
    fn fit(&self, samples: &[Sample], fit: &Fit) -> (f64, f64) {
        let rest = |sample: &Sample| sample.update - (self.gradient_part)(sample, fit);
        let square: f64 = samples.iter().map(|it| it.value * it.value).sum();
        let product: f64 = samples.iter().map(|it| it.value * rest(it)).sum();
        let decay = if square > 0.0 { (product / square).max(0.0) } else { 0.0 };
        let error = |it: &Sample| (rest(it) - decay * it.value).abs();
        (decay, largest(samples, error) / largest(samples, |it| it.update).max(f64::MIN_POSITIVE))
    }
}

fn largest(samples: &[Sample], size: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(|sample| size(sample).abs()).fold(0.0, f64::max)
}

struct Report<'a> {
    output: &'a mut dyn Write,
    tolerance: Tolerance,
    n_checks: usize,
    n_failed: usize,
}

impl Report<'_> {
    fn line(&mut self, is_good: bool, what: &str, found: &str) -> Result<(), Failure> {
        self.n_checks += 1;
        self.n_failed += usize::from(!is_good);
        let verdict = if is_good { "ok  " } else { "FAIL" };
        Ok(writeln!(self.output, "{verdict}  {what:<26} {found}")?)
    }

    /// Compares results of the trainer with the function's, relative to the largest of them.
    fn same(&mut self, what: &str, expected: &[f64], found: &[f32]) -> Result<(), Failure> {
        let scale = expected.iter().fold(f64::MIN_POSITIVE, |size, it| size.max(it.abs()));
        let error =
            expected.iter().zip(found).map(|(expected, it)| (expected - f64::from(*it)).abs());
        let error = error.fold(0.0, f64::max) / scale;
        let is_good = expected.len() == found.len() && error <= self.tolerance.result;
        let detail = match (expected, found) {
            ([expected], [found]) => format!("{found:.6}, the function gives {expected:.6}"),
            _ => format!("{} elements, largest relative difference {error:.1e}", found.len()),
        };
        self.line(is_good, what, &detail)
    }

    fn same_bytes(&mut self, what: &str, predicted: u64, counted: u64) -> Result<(), Failure> {
        self.line(predicted == counted, what, &format!("predicted {predicted}, counted {counted}"))
    }

    /// Compares the first update with each rule; at the least it must lead downhill.
    fn update(&mut self, samples: &[Sample], has_state: bool) -> Result<(), Failure> {
        let product = |size: fn(&Sample) -> f64| samples.iter().map(size).sum::<f64>();
        let squares = product(|it| it.slope * it.slope).max(f64::MIN_POSITIVE);
        let fit = Fit {
            factor: product(|it| it.slope * it.update) / squares,
            least_slope: self.tolerance.update * largest(samples, |it| it.slope),
        };
        let rules = RULES.iter().filter(|rule| has_state || !rule.needs_state);
        let fits: Vec<_> = rules.map(|rule| (rule, rule.fit(samples, &fit))).collect();
        // The first that holds, since the later ones are weaker; if none does, the nearest.
        let nearest = fits.iter().min_by(|left, right| left.1.1.total_cmp(&right.1.1));
        let best = fits.iter().find(|it| it.1.1 <= self.tolerance.update).or(nearest);
        let (rule, (decay, error)) = *best.expect("the first rule needs no state");
        let decay =
            if decay > 1e-5 { format!(" + {decay:.1e} of the parameter") } else { String::new() };
        let detail = format!(
            "{} elements: is {}{decay}, largest relative difference {error:.1e}",
            samples.len(),
            rule.name
        );
        self.line(error <= self.tolerance.update && fit.factor > 0.0, "first update", &detail)
    }

    fn conclude(self) -> Result<(), Failure> {
        match self.n_failed {
            0 => Ok(writeln!(self.output, "all {} checks passed", self.n_checks)?),
            n_failed => {
                Err(Failure::Work(format!("{n_failed} of {} checks failed", self.n_checks)))
            }
        }
    }
}
