//! `check` and `bench` of a predictor, on random numbers: a model of mode inference has no data of its own.

use std::{io::Write, time::Instant};

use soybean_explain::readable_bytes;
use soybean_runtime::Predictor;

use super::{
    Failure, Subject,
    bench::{least, median, resident},
    check::Report,
    flags::Options,
    oracle::{Numbers, Oracle},
    random::{Drawn, drawn},
};

const N_WARM_UP_PREDICTIONS: usize = 3;

/// The predictions that are measured, unless a flag says otherwise.
const N_PREDICTIONS: u64 = 20;

/// Compares outputs and bytes with those of the model's function and of its plan.
pub(super) fn check(
    subject: &Subject,
    options: &Options,
    output: &mut dyn Write,
) -> Result<(), Failure> {
    let tables = subject.model.tables();
    let mut report = Report::new(output, tables.precision);
    let batch = drawn(&tables.inputs, options.run.trainer.seed);
    let batch: Vec<_> = batch.iter().map(Drawn::view).collect();
    let mut predictor = Predictor::new(subject.model, options.run.trainer.clone())?;
    let weights = predictor.parameters()?;
    let weights = weights.iter().map(|(_, array)| Numbers::of_array(array)).collect();
    let expected = Oracle::new(subject, &batch, weights, options.run.trainer.seed).evaluation();
    let found = predictor.predict(&batch)?;
    let (predicted, counted) = (tables.evaluate_bytes, predictor.moved_bytes());
    report.same_bytes("bytes of a prediction", predicted, counted)?;
    for ((output, numbers), array) in tables.predictions().iter().zip(&expected).zip(&found) {
        report.same(&format!("output `{}`", output.name), &numbers.elements, &array.data)?;
    }
    report.conclude()
}

/// How long a prediction takes, what it moves and holds.
pub(super) fn bench(
    subject: &Subject,
    options: &Options,
    output: &mut dyn Write,
) -> Result<(), Failure> {
    let tables = subject.model.tables();
    let batch = drawn(&tables.inputs, options.run.trainer.seed);
    let batch: Vec<_> = batch.iter().map(Drawn::view).collect();
    let mut predictor = Predictor::new(subject.model, options.run.trainer.clone())?;
    for _ in 0..N_WARM_UP_PREDICTIONS {
        predictor.predict(&batch)?;
    }
    let mut milliseconds = Vec::new();
    for _ in 0..options.run.steps.unwrap_or(N_PREDICTIONS) {
        let started = Instant::now();
        predictor.predict(&batch)?;
        milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let mean = milliseconds.iter().sum::<f64>() / milliseconds.len() as f64;
    writeln!(output, "model             {}, {}", tables.name, predictor.device_line())?;
    writeln!(output, "predictions/s     {:.2}", 1e3 / mean)?;
    writeln!(
        output,
        "prediction        {:.3} ms median, {:.3} ms least, of {}",
        median(&milliseconds),
        least(&milliseconds),
        milliseconds.len()
    )?;
    writeln!(
        output,
        "bytes             {} predicted, {} counted",
        tables.evaluate_bytes,
        predictor.moved_bytes()
    )?;
    let per_rank = readable_bytes(tables.arena_bytes as u64);
    let all = readable_bytes((tables.arena_bytes * tables.mesh.n_ranks()) as u64);
    writeln!(output, "memory            {per_rank} per device, {all} in all{}", resident())?;
    Ok(())
}
