//! The reference: the CPU's kernels, run through the trainer.
#![expect(unsafe_code, reason = "tests vouch for their programs")]

use std::{slice, sync::Arc};

use soybean_plan::{DType, Executable, Precision, Program};
use soybean_runtime::{Config, Device, Error, Trainer, View};

use crate::{
    case::Case,
    program::{BufferTypes, program},
};

/// The learning rate, which is the first of the run-time scalars.
const LEARNING_RATE: f32 = 0.37;
/// The base of the second run-time scalar, `1 - BASE`.
pub(crate) const BASE: f64 = 0.9;

/// Returns the run-time scalars of all cases.
#[expect(clippy::cast_possible_truncation, reason = "scalars have single precision")]
pub(crate) fn scalars() -> [f32; 2] {
    [LEARNING_RATE, (1.0 - BASE) as f32]
}

/// Returns the results of a case; `bf16` numbers are `f32` here.
pub(crate) fn run(case: &Case) -> Vec<Vec<f32>> {
    run_on(case, 1)
}

/// As [`run`], on this many threads.
pub(crate) fn run_on(case: &Case, n_threads: usize) -> Vec<Vec<f32>> {
    let cases = slice::from_ref(case);
    let program = program(cases, Precision::F32, BufferTypes::Wide);
    let config = Config { device: Device::Cpu, threads: Some(n_threads), ..Config::default() };
    trained(program, cases, config).unwrap()
}

/// Runs a training step of these cases, and returns the results of all of them.
pub(crate) fn trained(
    program: Program,
    cases: &[Case],
    config: Config,
) -> Result<Vec<Vec<f32>>, Error> {
    let config = Config { seed: 0, learning_rate: LEARNING_RATE, ..config };
    // SAFETY: a case has the operands of its kernel, and each of its steps has buffers of its own.
    let program = unsafe { Executable::new(program) };
    let mut trainer = Trainer::new_shared(Arc::new(program), config)?;
    let inputs = || cases.iter().flat_map(|it| &it.inputs);
    let integers: Vec<Vec<i32>> = inputs().map(|it| as_integers(&it.numbers)).collect();
    let views = inputs().zip(&integers).map(|(data, integers)| match data.dtype {
        DType::F32 | DType::Bf16 => View::F32(&data.numbers),
        DType::I32 => View::I32(integers),
    });
    let views: Vec<View<'_>> = views.collect();
    trainer.step(&views)?;
    let evaluation = trainer.evaluate(&views)?;
    Ok(evaluation.outputs.into_iter().map(|it| it.data).collect())
}

#[expect(clippy::cast_possible_truncation, reason = "whole numbers, or not used")]
fn as_integers(numbers: &[f32]) -> Vec<i32> {
    numbers.iter().map(|it| *it as i32).collect()
}
