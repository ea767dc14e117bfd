//! `check` and `bench` of a predictor, on random inputs, since an inference model has no data.

use std::io::Write;

use soybean_runtime::{Predictor, data::Values};

use super::{
    CommandError, CommandModel,
    bench::{N_MEASURED, N_WARM_UP, Times, feeding, memory},
    check::Report,
    flags::Options,
    random::random_inputs,
};
use crate::oracle::{Numbers, Oracle};

/// Compares outputs and moved bytes with the model's function and its plan.
pub(super) fn check(
    model: &CommandModel,
    options: &Options,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let tables = model.model.tables();
    let mut report = Report::new(output, tables.precision);
    let batch = random_inputs(&tables.inputs, options.run.trainer.seed);
    let batch: Vec<_> = batch.iter().map(Values::view).collect();
    let mut predictor = Predictor::new(model.model, options.run.trainer.clone())?;
    let weights = predictor.parameters()?;
    let weights = weights.iter().map(|(_, array)| Numbers::of_array(array)).collect();
    let expected = Oracle::new(model, &batch, weights, options.run.trainer.seed).evaluation();
    let found = predictor.predict(&batch)?;
    let (predicted, counted) = (tables.evaluate_bytes, predictor.moved_bytes());
    report.compare_bytes("bytes of a prediction", predicted, counted)?;
    report.compare_bytes("bytes of feeding a batch", tables.fed_bytes(), predictor.fed_bytes())?;
    for ((output, numbers), array) in tables.predictions().iter().zip(&expected).zip(&found) {
        report.compare(&format!("output `{}`", output.name), &numbers.elements, &array.data)?;
    }
    report.conclude()
}

/// Measures predictions, moved bytes and memory.
pub(super) fn bench(
    model: &CommandModel,
    options: &Options,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let tables = model.model.tables();
    let batch = random_inputs(&tables.inputs, options.run.trainer.seed);
    let batch: Vec<_> = batch.iter().map(Values::view).collect();
    let mut predictor = Predictor::new(model.model, options.run.trainer.clone())?;
    for _ in 0..N_WARM_UP {
        predictor.predict(&batch)?;
    }
    let mut times = Times::default();
    for _ in 0..options.n_measured.unwrap_or(N_MEASURED) {
        times.time(|| predictor.predict(&batch))?;
    }
    writeln!(output, "model             {}, {}", tables.name, predictor.device_line())?;
    writeln!(output, "predictions/s     {:.2}", times.per_second())?;
    writeln!(output, "prediction        {times}")?;
    writeln!(
        output,
        "bytes             {} predicted, {} counted",
        tables.evaluate_bytes,
        predictor.moved_bytes()
    )?;
    writeln!(output, "feeding           {}", feeding(tables, predictor.fed_bytes()))?;
    writeln!(output, "memory            {}", memory(tables))?;
    Ok(())
}
