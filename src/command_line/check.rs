//! `check`: compares the generated trainer with the model's own function.
//!
//! Loss and outputs are compared directly. Gradients are not visible from outside, so the first
//! update is compared with that of the optimizer's definition, computed from finite differences. If
//! several steps share an update, all of them run on the same batch.
//!
//! A model with several entries has no data, so each entry is checked on random inputs, from new
//! parameters.

mod first_update;
#[cfg(test)]
mod tests;

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use soybean_explain::Changes;
use soybean_plan::{Precision, RunScalar, Tables, separate_weights};
use soybean_runtime::{
    Config, Trainer, View,
    data::{Dataset, Values},
};

use super::{CommandError, CommandModel, flags::Options, random::random_inputs};
use crate::{
    oracle::{Numbers, Oracle},
    run::first,
};
use first_update::{FirstUpdate, Role, Sample, difference, sample};

/// Tolerances against the function in double precision, relative to the largest number.
struct Tolerance {
    /// The tolerance of losses and outputs.
    result: f64,
    /// The tolerance of updates. They are differences of parameters in single precision, after as
    /// many roundings again as the results.
    update: f64,
}

impl Tolerance {
    const fn of(precision: Precision) -> Self {
        match precision {
            // Some thousand terms are summed in another order.
            Precision::F32 => Self { result: 1e-4, update: 1e-3 },
            // Operands are rounded at 2^-11, and the deepest networks have some dozen products in
            // sequence.
            Precision::Tf32 => Self { result: 5e-3, update: 2e-2 },
            // All tensors are rounded at 2^-9.
            Precision::Bf16 => Self { result: 2e-2, update: 8e-2 },
        }
    }
}

pub(super) fn check(
    model: &CommandModel,
    options: &Options,
    dataset: &Arc<dyn Dataset>,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let batch = first("training", dataset, &model.model.tables().inputs)?;
    check_on(model, &options.run.trainer, &batch.views(), output)
}

fn check_on(
    model: &CommandModel,
    config: &Config,
    batch: &[View<'_>],
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let mut report = Report::new(output, model.model.tables().precision);
    check_entry(model, config, (0, batch), &mut report)?;
    report.separate_weights(model.model.tables())?;
    report.conclude()
}

/// Checks all entries of a model on random inputs.
pub(super) fn check_entries(
    model: &CommandModel,
    config: &Config,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let tables = model.model.tables();
    let mut report = Report::new(output, tables.precision);
    for entry in 0..tables.entries.len() {
        let batch = random_inputs(tables.inputs_of(entry), config.seed);
        let batch: Vec<View<'_>> = batch.iter().map(Values::view).collect();
        check_entry(model, config, (entry, &batch), &mut report)?;
    }
    report.separate_weights(tables)?;
    report.conclude()
}

fn check_entry(
    model: &CommandModel,
    config: &Config,
    (entry, batch): (usize, &[View<'_>]),
    report: &mut Report<'_>,
) -> Result<(), CommandError> {
    let tables = model.model.tables();
    let by_entry = suffix(tables, entry);
    // With a learning rate of 1, the update is the difference of the parameters.
    let mut trainer = Trainer::new(model.model, Config { learning_rate: 1.0, ..config.clone() })?;
    let before = numbers(&mut trainer)?;
    let mut oracle = Oracle::new(model, (entry, batch), &before, config.seed);
    let forward_time = report.evaluation(&mut trainer, (entry, batch), tables, &oracle)?;
    let steps = report.steps(&mut trainer, (entry, batch), tables, &oracle)?;
    let recipe = Changes::default().apply(model.plan.recipe)?;
    let optimizer = &recipe.options.optimizer;
    let clipping = match (optimizer.clip_norm, trainer.gradient_norm()) {
        (Some(limit), Some(norm)) => (limit / (f64::from(norm) + 1e-6)).min(1.0),
        _ => 1.0,
    };
    let role = |number: &usize| {
        let it = &tables.parameters[*number];
        Role {
            name: &it.name,
            shape: it.tile.shape,
            is_trained: it.is_trained && recipe.trains(entry, &it.name),
            group: optimizer.group_of(&it.name),
        }
    };
    let made = tables.entries[entry].distinct_parameters();
    let roles: Vec<Role<'_>> = made.iter().map(role).collect();
    let first = FirstUpdate { steps: &steps, clipping, roles: &roles };
    let after = after_update(&mut trainer, tables)?;
    let after: Vec<Numbers> = made.iter().map(|it| after[*it].clone()).collect();
    let samples = sample(&mut oracle, &after, &first, forward_time);
    let expected = |parameter: usize, element| {
        let Role { name, shape, .. } = roles[parameter];
        optimizer.first_update((name, shape), element)
    };
    let groups = (0..optimizer.groups.len()).map(Some);
    for group in [None].into_iter().chain(groups) {
        let what = match group {
            Some(group) => {
                format!("first update of `{}`{by_entry}", optimizer.groups[group].pattern)
            }
            None => format!("first update{by_entry}"),
        };
        let of_group = |it: &&Sample| roles[it.parameter].group == group;
        let samples: Vec<&Sample> = samples.iter().filter(of_group).collect();
        if let [first, ..] = samples[..] {
            let rule = optimizer.rule_of(roles[first.parameter].name);
            let error = difference(&samples, report.tolerance.update, expected);
            report.update(&what, (rule.method().name, clipping), &samples, error)?;
        }
    }
    Ok(())
}

/// Returns the name of an entry as the end of a line, if there are several.
pub(super) fn suffix(tables: &Tables, entry: usize) -> String {
    match &tables.entries[..] {
        [_] => String::new(),
        entries => format!(" by `{}`", entries[entry].name),
    }
}

/// Returns the parameters after the first update. Those that change by no update, but have their
/// gradient kept, are returned as gradient descent would leave them.
fn after_update(trainer: &mut Trainer, tables: &Tables) -> Result<Vec<Numbers>, CommandError> {
    let mut after = numbers(trainer)?;
    for (name, _) in tables.kept_gradients() {
        let number = tables.parameters.iter().position(|it| it.name == name);
        let Some(number) = number else { continue };
        let gradient = trainer.gradient(name)?;
        for (it, gradient) in after[number].elements.iter_mut().zip(gradient.data) {
            *it -= f64::from(gradient);
        }
    }
    Ok(after)
}

fn numbers(trainer: &mut Trainer) -> Result<Vec<Numbers>, CommandError> {
    Ok(trainer.parameters()?.iter().map(|(_, array)| Numbers::of_array(array)).collect())
}

/// The results of a check so far.
pub(super) struct Report<'a> {
    output: &'a mut dyn Write,
    tolerance: Tolerance,
    n_checks: usize,
    n_failed: usize,
}

impl<'a> Report<'a> {
    pub(super) fn new(output: &'a mut dyn Write, precision: Precision) -> Self {
        Self { output, tolerance: Tolerance::of(precision), n_checks: 0, n_failed: 0 }
    }
}

impl Report<'_> {
    /// Compares an evaluation of an entry; returns the time that the function takes.
    fn evaluation(
        &mut self,
        trainer: &mut Trainer,
        (entry, batch): (usize, &[View<'_>]),
        tables: &Tables,
        oracle: &Oracle,
    ) -> Result<Duration, CommandError> {
        let by_entry = suffix(tables, entry);
        let started = Instant::now();
        let expected = oracle.evaluation();
        let forward_time = started.elapsed();
        let evaluation = trainer.evaluate_by(entry, batch)?;
        let what = format!("bytes of an evaluation{by_entry}");
        self.compare_bytes(&what, tables.entries[entry].bytes, trainer.moved_bytes())?;
        let what = format!("bytes of feeding a batch{by_entry}");
        self.compare_bytes(&what, tables.fed_bytes(entry), trainer.fed_bytes())?;
        let what = format!("loss of an evaluation{by_entry}");
        self.compare(&what, &expected[0].elements, &[evaluation.loss])?;
        let outputs = tables.predictions(entry).iter();
        for ((output, array), numbers) in outputs.zip(&evaluation.outputs).zip(&expected[1..]) {
            let what = format!("output `{}`{by_entry}", output.name);
            self.compare(&what, &numbers.elements, &array.data)?;
        }
        Ok(forward_time)
    }

    /// Runs steps until the first update; returns the steps whose gradients differ.
    fn steps(
        &mut self,
        trainer: &mut Trainer,
        (entry, batch): (usize, &[View<'_>]),
        tables: &Tables,
        oracle: &Oracle,
    ) -> Result<Vec<u64>, CommandError> {
        let mut steps = Vec::new();
        let by_entry = suffix(tables, entry);
        let predicted = [tables.accumulate_bytes, tables.entries[entry].bytes_of_call()];
        let [mut accumulated, mut moved_bytes] = predicted;
        let mut first_loss = None;
        while trainer.counters().n_updates == 0 {
            let is_update = trainer.is_next_step_update();
            let loss = trainer.step_by(entry, batch)?;
            let step = trainer.n_steps();
            if trainer.moved_bytes() != predicted[usize::from(is_update)] {
                let moved = if is_update { &mut moved_bytes } else { &mut accumulated };
                *moved = trainer.moved_bytes();
            }
            first_loss.get_or_insert(loss);
            match (trainer.was_skipped(), is_update) {
                (false, _) => steps.push(step),
                // The gradients of the steps before it are dropped.
                (true, true) => steps.clear(),
                (true, false) => {}
            }
        }
        if tables.accumulate > 1 {
            let what = "bytes while accumulating";
            self.compare_bytes(what, tables.accumulate_bytes, accumulated)?;
        }
        let what = format!("bytes of a training step{by_entry}");
        self.compare_bytes(&what, predicted[1], moved_bytes)?;
        let expected = [oracle.training_loss(1)];
        let what = format!("loss of a training step{by_entry}");
        self.compare(&what, &expected, first_loss.as_slice())?;
        if !tables.scalars.contains(&RunScalar::Noise) {
            steps.truncate(1);
        }
        Ok(steps)
    }

    fn line(&mut self, is_good: bool, what: &str, found: &str) -> Result<(), CommandError> {
        self.n_checks += 1;
        self.n_failed += usize::from(!is_good);
        let verdict = if is_good { "ok  " } else { "FAIL" };
        Ok(writeln!(self.output, "{verdict}  {what:<26} {found}")?)
    }

    /// Compares results of the trainer with those of the function, relative to the largest number.
    pub(super) fn compare(
        &mut self,
        what: &str,
        expected: &[f64],
        found: &[f32],
    ) -> Result<(), CommandError> {
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

    pub(super) fn compare_bytes(
        &mut self,
        what: &str,
        predicted: u64,
        counted: u64,
    ) -> Result<(), CommandError> {
        self.line(predicted == counted, what, &format!("predicted {predicted}, counted {counted}"))
    }

    /// Reports the difference of the first update of some parameters from that of the optimizer of
    /// this name.
    fn update(
        &mut self,
        what: &str,
        (optimizer, clipping): (&str, f64),
        samples: &[&Sample],
        difference: f64,
    ) -> Result<(), CommandError> {
        let clipped = match clipping < 1.0 {
            true => format!(", clipped to {clipping:.1e} of it"),
            false => String::new(),
        };
        let detail = format!(
            "{} elements: {optimizer} of the gradient{clipped}, largest relative difference {difference:.1e}",
            samples.len(),
        );
        let has_gradient = samples.iter().any(|it| it.slope != 0.0);
        self.line(difference <= self.tolerance.update && has_gradient, what, &detail)
    }

    /// Says which functions are called several times with weights of their own.
    fn separate_weights(&mut self, tables: &Tables) -> Result<(), CommandError> {
        let names = tables.parameters.iter().map(|it| &*it.name);
        match separate_weights(names) {
            Some(calls) => Ok(writeln!(self.output, "      separate weights in {calls}")?),
            None => Ok(()),
        }
    }

    pub(super) fn conclude(self) -> Result<(), CommandError> {
        match self.n_failed {
            0 => Ok(writeln!(self.output, "all {} checks passed", self.n_checks)?),
            n_failed => {
                Err(CommandError::Failed(format!("{n_failed} of {} checks failed", self.n_checks)))
            }
        }
    }
}
