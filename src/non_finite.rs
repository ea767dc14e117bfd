//! The first tensor of a training step that is not finite, and its line in the source.

use soybean_explain::{Changes, Compiled, compile_again, describe_tensor};
use soybean_plan::{Input, Tables};
use soybean_runtime::{Error, ErrorKind, NonFiniteTensor, Process, Trainer, View};

/// Returns true if the first tensor that is not finite can be found for this error. Several
/// processes do not compute a step again.
pub(crate) fn can_explain(error: &Error, trainer: &Trainer) -> bool {
    error.kind() == ErrorKind::Loss && trainer.process() == Process::ONLY
}

/// Adds the first tensor that is not finite to the error of a step whose loss, gradients or next
/// values are not finite, on this batch of the entry of this number. The step is computed again. A
/// step whose loss is not finite changes nothing; another one keeps the numbers whose next values
/// are not finite, so mostly the same numbers appear again.
pub(crate) fn explained(
    error: Error,
    trainer: &mut Trainer,
    tables: &Tables,
    recipe: &str,
    batch: (usize, &[View<'_>]),
) -> Error {
    if !can_explain(&error, trainer) {
        return error;
    }
    // The error of the step matters more than one of the second computation.
    let found = NonFiniteTensors::of_step(trainer, tables, batch).unwrap_or_default();
    let first = found.description(tables, recipe);
    let first = first.map_or_else(String::new, |first| format!("; {first}"));
    let hint = match tables.non_finite.skips() || first.is_empty() || found.is_of_updates(tables) {
        true => "",
        false => "; `non_finite = \"skip\"` in the model's attribute skips such steps",
    };
    Error::new(error.kind(), format!("{error}{first}{hint}"))
}

/// Runs a training step, and describes the first tensor that is not finite, if there is one.
pub(crate) fn first_non_finite(
    trainer: &mut Trainer,
    tables: &Tables,
    recipe: &str,
    batch: (usize, &[View<'_>]),
) -> Result<Option<String>, Error> {
    let found = NonFiniteTensors::of_step(trainer, tables, batch)?;
    Ok(found.description(tables, recipe))
}

/// Returns the error of an evaluation of a batch whose loss is not finite, with the first tensor
/// that is not finite.
pub(crate) fn evaluation_error(
    loss: f32,
    trainer: &mut Trainer,
    tables: &Tables,
    recipe: &str,
    batch: &[View<'_>],
) -> Error {
    let found = NonFiniteTensors::of_evaluation(trainer, tables, batch).unwrap_or_default();
    let first = found.description(tables, recipe);
    let first = first.map_or_else(String::new, |first| format!("; {first}"));
    let found = name_of(loss);
    Error::new(ErrorKind::Loss, format!("expected a finite loss, found {found}{first}"))
}

/// The part of a step or an evaluation that is not finite.
#[derive(Default)]
struct NonFiniteTensors {
    /// The description of an input.
    input: Option<String>,
    /// The first tensor that is computed, and the first one with NaN if that is another one.
    computed: Vec<NonFiniteTensor>,
}

impl NonFiniteTensors {
    /// Runs a training step of the entry of this number.
    fn of_step(
        trainer: &mut Trainer,
        tables: &Tables,
        (entry, batch): (usize, &[View<'_>]),
    ) -> Result<Self, Error> {
        let input = of_batch(tables.inputs_of(entry), batch);
        let computed = match input {
            Some(_) => Vec::new(),
            None => trainer.inspect_step_by(entry, batch)?,
        };
        Ok(Self { input, computed })
    }

    /// Runs the forward computation.
    fn of_evaluation(
        trainer: &mut Trainer,
        tables: &Tables,
        batch: &[View<'_>],
    ) -> Result<Self, Error> {
        let input = of_batch(tables.inputs_of(0), batch);
        let computed = match input {
            Some(_) => Vec::new(),
            None => trainer.inspect_evaluation(batch)?,
        };
        Ok(Self { input, computed })
    }

    /// Returns true if only updates give such numbers.
    fn is_of_updates(&self, tables: &Tables) -> bool {
        let is_next = |it: &NonFiniteTensor| {
            it.call.is_some() && tables.next_values.iter().any(|next| next.buffer == it.buffer)
        };
        self.computed.first().is_some_and(is_next)
    }

    fn description(&self, tables: &Tables, recipe: &str) -> Option<String> {
        let [first, rest @ ..] = &self.computed[..] else { return self.input.clone() };
        let compiled = compiled(tables, recipe);
        let text = |it: &NonFiniteTensor| {
            format!("{}: {}", of_step(tables, compiled.as_ref(), it), name_of(it.value))
        };
        let mut message = format!("the first tensor that is not finite is {}", text(first));
        if let Some(nan) = rest.first() {
            message.push_str(&format!("; the first with NaN is {}", text(nan)));
        }
        Some(message)
    }
}

/// Describes the first input of a batch that is not finite.
fn of_batch(inputs: &[Input], batch: &[View<'_>]) -> Option<String> {
    inputs.iter().zip(batch).find_map(|(input, view)| {
        let View::F32(elements) = view else { return None };
        let at = elements.iter().position(|it| !it.is_finite())?;
        let n_each: usize = input.tile.shape.iter().skip(1).product();
        let (name, row, value) = (&input.name, at / n_each.max(1), name_of(elements[at]));
        Some(format!("the input `{name}` is not finite in row {row} of the batch: {value}"))
    })
}

/// Describes a tensor that is not finite before or in a step.
fn of_step(tables: &Tables, compiled: Option<&Compiled>, found: &NonFiniteTensor) -> String {
    let NonFiniteTensor { buffer, call, .. } = *found;
    let parameters = tables.parameters.iter().map(|it| ("parameter", &it.name, it.buffer));
    let states = tables.states.iter().map(|it| ("state", &it.name, it.buffer));
    if let Some((kind, name, _)) = parameters.chain(states).find(|it| it.2 == buffer) {
        return match call {
            None => format!("the {kind} `{name}`, before the step"),
            Some(_) => format!("the next value of the {kind} `{name}`"),
        };
    }
    let report = compiled.map(|it| &it.report);
    let value = report.and_then(|report| Some((report, report.value_of_buffer(buffer)?)));
    value.map_or_else(|| format!("buffer {buffer}"), |(report, it)| describe_tensor(report, it))
}

/// Compiles the model again, since the program knows no names of tensors. Returns `None` if that
/// gives another program.
fn compiled(tables: &Tables, recipe: &str) -> Option<Compiled> {
    let compiled = compile_again(&Changes::default().apply(recipe).ok()?).ok()?;
    (compiled.program.tables.buffers == tables.buffers).then_some(compiled)
}

fn name_of(number: f32) -> &'static str {
    match number {
        number if number.is_nan() => "NaN",
        number if number > 0.0 => "infinity",
        _ => "minus infinity",
    }
}
