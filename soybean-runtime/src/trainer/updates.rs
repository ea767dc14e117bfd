//! The outcome of training steps: updates, accumulated gradients, and skipped steps.

use std::collections::BTreeMap;

use soybean_plan::{State, Tables};

use super::Trainer;
use crate::{
    Array, Counters, Error, ErrorKind, Process,
    abort::lock,
    counters::{after_skip, after_step, is_update},
    ranks::Command,
    state::{self, TensorRange, fetch_ranges},
};

/// The counters and the outcome of the last steps.
#[derive(Default)]
pub(super) struct History {
    pub(super) counters: Counters,
    /// The norm of the gradients, if the last step computed it.
    gradient_norm: Option<f32>,
    /// True if the last step was skipped.
    is_skipped: bool,
    /// The number of consecutive steps that were skipped.
    n_skipped: u32,
    /// The number of consecutive updates that were skipped because the total of the gradients of
    /// their steps was not finite.
    n_dropped: u32,
    /// The update that the last step dropped, if that was an error.
    pub(super) dropped: Option<DroppedUpdate>,
    /// The step that changed the state only in part, if one did.
    partial: Option<u64>,
}

/// An update that was dropped because the total of the gradients of its steps was not finite.
#[derive(Default)]
pub(super) struct DroppedUpdate {
    /// The sums of the gradients of the steps before it, by the numbers of their tensors, if they
    /// were kept.
    pub(super) sums: Vec<(usize, Array)>,
}

/// The limit for consecutive steps, or updates, that are skipped.
const MAX_SKIPPED: u32 = 100;

impl Trainer {
    /// Returns the counters of the run.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.history.counters
    }

    /// Returns true if the next training step updates the parameters, unless it is skipped. Other
    /// steps only accumulate gradients.
    #[must_use]
    pub fn is_next_step_update(&self) -> bool {
        is_update(self.history.counters, self.tables())
    }

    /// Returns the bytes that the next training step moves between ranks, as its plan predicts.
    /// They differ between steps that update the parameters and those that only accumulate
    /// gradients.
    #[must_use]
    pub fn bytes_of_next_step(&self) -> u64 {
        let tables = self.tables();
        match self.is_next_step_update() {
            true => tables.train_bytes(),
            false => tables.accumulate_bytes,
        }
    }

    /// Replaces the counters, after a state was loaded that was saved with them. Counters that a
    /// trainer of this model cannot have are an error of the next training step.
    pub fn set_counters(&mut self, counters: Counters) {
        self.history = History { counters, ..History::default() };
    }

    /// Returns the 2-norm of all gradients in the last step, before clipping. If several steps
    /// share an update, it is the norm of their mean gradients. It is `None` if the model does not
    /// compute it, or if the last step only accumulated gradients.
    #[must_use]
    pub const fn gradient_norm(&self) -> Option<f32> {
        self.history.gradient_norm
    }

    /// Returns true if the last step was skipped because its loss or its gradients were not finite.
    /// Only models with `non_finite = "skip"` or `"scale"` skip steps.
    #[must_use]
    pub const fn was_skipped(&self) -> bool {
        self.history.is_skipped
    }

    /// Returns the moving averages of the trained parameters, and the buffers, by name.
    ///
    /// The bias of an average that starts at 0 is corrected: with decay `d` the result is
    /// `average / (1 - d^n_updates)`. Before the first update the results are the parameters.
    ///
    /// # Errors
    /// If the model keeps no averages, or a rank fails.
    pub fn averaged_parameters(&mut self) -> Result<Vec<(String, Array)>, Error> {
        let Some(decay) = self.tables().ema else {
            let message = "expected a model that keeps averages of its parameters, such as `ema = 0.999`, found none";
            return Err(Error::new(ErrorKind::Parameters, message));
        };
        let n_updates = self.history.counters.n_updates;
        if n_updates == 0 {
            return self.parameters();
        }
        let weight = 1.0 - decay.powf(n_updates as f64);
        let (names, places) = averages(self.tables());
        let mut averages: Vec<Option<Array>> = names.iter().map(|_| None).collect();
        for range in fetch_ranges(self.tables()) {
            let numbers = range.first..range.first + range.n_tensors;
            if places.range(numbers.clone()).next().is_none() {
                continue;
            }
            for (number, mut array) in numbers.zip(self.fetch(range)?) {
                let Some(parameter) = places.get(&number) else { continue };
                if number >= names.len() {
                    array.data.iter_mut().for_each(|it| *it = without_bias(*it, weight));
                }
                averages[*parameter] = Some(array);
            }
        }
        Ok(names.into_iter().zip(averages.into_iter().flatten()).collect())
    }

    /// Returns the sums of gradients, by the numbers of their tensors, if the next step is an
    /// update that must not be dropped, because as many as are tolerated were dropped before. Such
    /// a step sets the sums to zero, and they are needed to inspect it.
    pub(super) fn sums_at_risk(&mut self) -> Result<DroppedUpdate, Error> {
        let tables = self.tables();
        let is_at_risk = tables.accumulate > 1
            && self.is_next_step_update()
            && tables.non_finite.skips()
            && self.history.n_dropped + 1 >= MAX_SKIPPED
            && self.process() == Process::ONLY;
        if !is_at_risk {
            return Ok(DroppedUpdate::default());
        }
        let states = tables.states.iter().zip(tables.parameters.len()..);
        let numbers =
            states.filter(|(it, _)| State::is_step_sum(&it.name)).map(|(_, number)| number);
        let numbers: Vec<usize> = numbers.collect();
        let mut sums = Vec::new();
        for first in numbers {
            let array = self.fetch(TensorRange { first, n_tensors: 1 })?.pop();
            sums.extend(array.map(|it| (first, it)));
        }
        Ok(DroppedUpdate { sums })
    }

    /// Updates the counters after a step. Returns its loss. `update` has the sums that the step
    /// may have cleared.
    pub(super) fn finish_step(
        &mut self,
        entry: usize,
        update: DroppedUpdate,
    ) -> Result<f32, Error> {
        let (loss, norm) = {
            let report = lock(&self.ranks.reports()[0]);
            (report.loss, report.gradient_norm)
        };
        let is_finite = loss.is_finite() && norm.is_none_or(f32::is_finite);
        if is_finite && let Some(error) = self.non_finite_value() {
            return Err(error);
        }
        let non_finite = self.tables().non_finite;
        let before = self.history.counters;
        let is_skipped = !is_finite && non_finite.skips();
        let counters = match is_skipped {
            true => after_skip(before, self.tables(), loss),
            false => after_step(before, self.tables(), entry),
        };
        let History { n_skipped, n_dropped, .. } = self.history;
        let n_skipped = if is_skipped { n_skipped + 1 } else { 0 };
        let n_dropped = match (is_skipped, is_update(before, self.tables())) {
            (true, true) if loss.is_finite() => n_dropped + 1,
            (false, true) => 0,
            (true | false, _) => n_dropped,
        };
        let is_tolerated = is_skipped && n_skipped.max(n_dropped) < MAX_SKIPPED;
        if !(is_finite || is_tolerated) {
            // The step can be computed again. If its loss is finite, it has dropped the gradients
            // of the steps before it.
            let after = after_skip(before, self.tables(), loss);
            self.history.counters.n_accumulated = after.n_accumulated;
            let is_dropped = self.tables().accumulate > 1
                && is_update(before, self.tables())
                && loss.is_finite();
            self.history.dropped = is_dropped.then_some(update);
            return Err(self.non_finite_error(loss, norm, n_skipped));
        }
        self.history = History {
            counters,
            gradient_norm: norm,
            is_skipped,
            n_skipped,
            n_dropped,
            ..History::default()
        };
        Ok(loss)
    }

    /// Returns the error of a next value that is not finite on some rank, if there is one. The
    /// other numbers have changed.
    fn non_finite_value(&mut self) -> Option<Error> {
        let mut reports = self.ranks.reports().iter();
        let buffer = reports.find_map(|it| lock(it).non_finite_state)?;
        let (rate, step) = (self.learning_rate, self.history.counters.n_steps + 1);
        let tensor = state::described(self.tables(), buffer);
        self.history.partial = Some(step);
        Some(Error::new(
            ErrorKind::Loss,
            format!(
                "expected finite parameters, buffers and states, found that step {step} would leave {tensor} not finite (learning rate {rate:?}); other numbers of the state have changed, so a checkpoint must be restored before the next step"
            ),
        ))
    }

    /// Returns an error if a command needs a state that the last step has changed only in part.
    pub(super) fn check_whole(&self, command: &Command<'_>) -> Result<(), Error> {
        let needs_it = match command {
            Command::Train(step) => !step.is_inspected,
            Command::Queue { .. } | Command::Evaluate { .. } | Command::Save(_) => true,
            Command::Fetch(_) | Command::Load { .. } | Command::ResetProfile => false,
        };
        match self.history.partial {
            Some(step) if needs_it => Err(Error::new(
                ErrorKind::Rank,
                format!(
                    "expected a restored checkpoint, since a number in step {step} was not finite, which has changed the state in part; found none"
                ),
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the error of a loss or gradients that are not finite.
    fn non_finite_error(&self, loss: f32, norm: Option<f32>, n_skipped: u32) -> Error {
        let (rate, step) = (self.learning_rate, self.history.counters.n_steps + 1);
        let (what, found) = match norm.filter(|_| loss.is_finite()) {
            None => ("loss", name_of(loss)),
            Some(norm) => ("norm of the gradients", name_of(norm)),
        };
        let expected = if what == "loss" { "a finite loss" } else { "finite gradients" };
        let skipped = match self.tables().non_finite.skips() {
            true if n_skipped < MAX_SKIPPED => {
                format!(", and {MAX_SKIPPED} updates in a row were skipped")
            }
            true => format!(", and {MAX_SKIPPED} steps in a row were skipped"),
            false => String::new(),
        };
        Error::new(
            ErrorKind::Loss,
            format!(
                "expected {expected}, found that the {what} is {found} in step {step} (learning rate {rate:?}){skipped}"
            ),
        )
    }
}

/// Returns the names of all parameters, and a map from numbers of tensors to numbers of parameters.
/// The tensor is the average of the parameter, or the parameter itself if it has no average.
fn averages(tables: &Tables) -> (Vec<String>, BTreeMap<usize, usize>) {
    let states = tables.states.iter().map(|it| it.name.as_ref());
    let states: BTreeMap<&str, usize> = states.zip(tables.parameters.len()..).collect();
    let names: Vec<String> = tables.parameters.iter().map(|it| it.name.to_string()).collect();
    let place = |(number, name): (usize, &String)| {
        (states.get(&*format!("{name}.ema")).copied().unwrap_or(number), number)
    };
    let places = names.iter().enumerate().map(place).collect();
    (names, places)
}

#[expect(clippy::cast_possible_truncation, reason = "parameters have single precision")]
fn without_bias(average: f32, weight: f64) -> f32 {
    (f64::from(average) / weight) as f32
}

fn name_of(number: f32) -> &'static str {
    match number {
        number if number.is_nan() => "NaN",
        number if number > 0.0 => "infinite",
        _ => "minus infinity",
    }
}
