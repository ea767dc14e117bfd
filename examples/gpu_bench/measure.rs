//! The measurement of one case.

use std::{error::Error, fs, time::Instant};

use serde_json::{Value, json};
use soybean::{
    Config, Device,
    plan::{
        DType, Input, Precision,
        random::{mixed, next_state},
    },
    runtime::{Model, Trainer, View, data::Values},
};

use super::{
    cases::{Case, Size, Task},
    flags::Options,
};

/// Steps before the measurement, in which graphs are captured and clocks rise.
const N_WARM_UP_STEPS: usize = 5;
/// The products in one evaluation of the model `peak`.
const N_PRODUCTS: f64 = 16.0;

/// Returns the measurement as one line of JSON.
pub(crate) fn line(case: &Case, options: &Options) -> Result<String, Box<dyn Error>> {
    let program = (case.program)();
    let batch = random_batch(program)?;
    let views: Vec<View<'_>> = batch.iter().map(Values::view).collect();
    let started = Instant::now();
    let mut trainer = Trainer::new(program, options.config.clone())?;
    let setup_seconds = started.elapsed().as_secs_f64();
    let (milliseconds, loss) = steps(case, &mut trainer, &views, options)?;
    if options.checks {
        let config = Config { device: Device::Cpu, ..options.config.clone() };
        let expected = steps(case, &mut Trainer::new(program, config)?, &views, options)?.1;
        check_loss(loss, expected, case.precision())?;
    }
    let median = milliseconds[milliseconds.len() / 2];
    let flops = flops(case)?;
    let mut line = head(case);
    line.extend(object(json!({
        "device": trainer.device_line(),
        "graphs": options.config.uses_graphs,
        "steps": milliseconds.len(),
        "ms_median": median,
        "ms_min": milliseconds[0],
        "flops": flops,
        "tflops": flops / median / 1e9,
        "arena_bytes": program.tables().arena_bytes,
        "moved_bytes": trainer.moved_bytes(),
        "launch_us": launch_microseconds(&trainer),
        "setup_seconds": setup_seconds,
        "loss": loss,
    })));
    Ok(Value::Object(line).to_string())
}

/// Runs the steps of a case. Returns their times in milliseconds in ascending order, and the last
/// loss.
fn steps(
    case: &Case,
    trainer: &mut Trainer,
    batch: &[View<'_>],
    options: &Options,
) -> Result<(Vec<f64>, f32), Box<dyn Error>> {
    match case.task {
        Task::Train => training_steps(trainer, batch, options),
        Task::Products(_) => evaluations(trainer, batch, options),
    }
}

/// Checks the loss of a device against that of the CPU, after the same steps. With `f32`, sums have
/// another order. The other two formats have 10 and 7 bits of mantissa.
fn check_loss(found: f32, expected: f32, precision: Precision) -> Result<(), Box<dyn Error>> {
    let tolerance = match precision {
        Precision::F32 => 1e-4,
        Precision::Tf32 | Precision::Bf16 => 1e-2,
    };
    // The loss of the model of products is close to 0; those of other models are above 1. NaN is
    // never close.
    let is_close = (found - expected).abs() <= tolerance * expected.abs().max(1.0);
    let fault = || format!("the last loss is {found}, and {expected} on the CPU");
    is_close.then_some(()).ok_or_else(|| fault().into())
}

/// Returns the mean time in microseconds that the host took to launch a training step.
fn launch_microseconds(trainer: &Trainer) -> Option<f64> {
    let profile = trainer.profile().into_iter().next().filter(|it| it.n_steps > 0)?;
    Some(profile.handing_over.as_secs_f64() * 1e6 / profile.n_steps as f64)
}

/// Returns the error of a case as one line of JSON.
pub(crate) fn failure(case: &Case, error: &dyn Error) -> String {
    let mut line = head(case);
    line.extend(object(json!({ "error": error.to_string() })));
    Value::Object(line).to_string()
}

fn head(case: &Case) -> serde_json::Map<String, Value> {
    let program = (case.program)();
    object(json!({
        "program": "soybean",
        "model": case.model,
        "batch": program.tables().inputs.first().map(|it| it.tile.shape[0]),
        "precision": case.precision().name(),
        "ranks": case.plan.n_gpus,
        "feed": case.feed.name(),
        "small": case.size == Size::Small,
    }))
}

fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => serde_json::Map::new(),
    }
}

/// Returns the times of training steps in milliseconds in ascending order, and the last loss. The
/// next batch is queued during a step, as in training.
fn training_steps(
    trainer: &mut Trainer,
    batch: &[View<'_>],
    options: &Options,
) -> Result<(Vec<f64>, f32), Box<dyn Error>> {
    trainer.queue(batch)?;
    for _ in 0..N_WARM_UP_STEPS {
        trainer.step_queued(Some(batch))?;
    }
    trainer.reset_profile()?;
    let mut loss = f32::NAN;
    let mut milliseconds = Vec::with_capacity(options.n_steps);
    for _ in 0..options.n_steps {
        let started = Instant::now();
        loss = trainer.step_queued(Some(batch))?;
        milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
    }
    if let Some(file) = &options.trace {
        fs::write(file, trainer.trace_queued(None)?.1.to_json())?;
    }
    milliseconds.sort_unstable_by(f64::total_cmp);
    Ok((milliseconds, loss))
}

/// Returns the times of evaluations in milliseconds in ascending order, and the last loss.
fn evaluations(
    trainer: &mut Trainer,
    batch: &[View<'_>],
    options: &Options,
) -> Result<(Vec<f64>, f32), Box<dyn Error>> {
    for _ in 0..N_WARM_UP_STEPS {
        trainer.evaluate(batch)?;
    }
    let mut loss = f32::NAN;
    let mut milliseconds = Vec::with_capacity(options.n_steps);
    for _ in 0..options.n_steps {
        let started = Instant::now();
        loss = trainer.evaluate(batch)?.loss;
        milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
    }
    milliseconds.sort_unstable_by(f64::total_cmp);
    Ok((milliseconds, loss))
}

/// Returns the multiplications and additions in matrix products, convolutions and attention of all
/// ranks, as listed in the plan.
pub(crate) fn flops(case: &Case) -> Result<f64, Box<dyn Error>> {
    if let Task::Products(extent) = case.task {
        return Ok(N_PRODUCTS * 2.0 * (extent as f64).powi(3));
    }
    let plan: Value = serde_json::from_str(&soybean::explain::json(case.plan.recipe)?)?;
    let operators = plan["ops"].as_array().ok_or("the plan lists operators")?;
    let is_product = |operator: &&Value| {
        let name = operator["name"].as_str().unwrap_or_default();
        ["contract", "convolution", "attention"].iter().any(|it| name.starts_with(it))
    };
    Ok(operators.iter().filter(is_product).filter_map(|it| it["flops"].as_f64()).sum())
}

/// A random batch, the same in every run.
fn random_batch(program: &dyn Model) -> Result<Vec<Values>, Box<dyn Error>> {
    let mut state = 1;
    program.tables().inputs.iter().map(|input| random_numbers(input, &mut state)).collect()
}

/// Returns values uniform in `-1..1`, or labels and tokens.
fn random_numbers(input: &Input, state: &mut u64) -> Result<Values, Box<dyn Error>> {
    let mut bits = || {
        *state = next_state(*state);
        mixed(*state) >> 40
    };
    let n_elements = input.tile.shape.n_elements();
    Ok(match input.dtype {
        DType::F32 | DType::Bf16 => {
            Values::F32((0..n_elements).map(|_| bits() as f32 / 8_388_608.0 - 1.0).collect())
        }
        DType::I32 => {
            let n_classes = input.n_classes.ok_or("integers of an unknown range")? as u64;
            let draws = (0..n_elements).map(|_| i32::try_from(bits() % n_classes));
            Values::I32(draws.collect::<Result<_, _>>()?)
        }
    })
}
