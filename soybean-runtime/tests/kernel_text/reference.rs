//! The reference: the CPU's kernels, run as a program of one kernel through the trainer.

use std::sync::Arc;

use soybean_plan::{
    Buffer, DType, Entry, Input, Mesh, NonFinite, Output, Precision, Program, Rows, RunScalar,
    Shape, Step, Tables, Tile, Tiling,
};
use soybean_runtime::{Config, Device, Trainer, View};

use crate::case::Case;

/// The learning rate, which is the first of the run-time scalars.
const LEARNING_RATE: f32 = 0.37;
/// The base of the second run-time scalar, `1 - BASE`.
const BASE: f64 = 0.9;

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
    let config = Config {
        seed: 0,
        learning_rate: LEARNING_RATE,
        device: Device::Cpu,
        threads: Some(n_threads),
        ..Config::default()
    };
    let mut trainer = Trainer::new_shared(Arc::new(program(case)), config).unwrap();
    let integers: Vec<Vec<i32>> = case.inputs.iter().map(|it| as_integers(&it.numbers)).collect();
    let views = case.inputs.iter().zip(&integers).map(|(data, integers)| match data.dtype {
        DType::F32 | DType::Bf16 => View::F32(&data.numbers),
        DType::I32 => View::I32(integers),
    });
    let views: Vec<View<'_>> = views.collect();
    trainer.step(&views).unwrap();
    let evaluation = trainer.evaluate(&views).unwrap();
    evaluation.outputs.into_iter().map(|it| it.data).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "whole numbers, or not used")]
fn as_integers(numbers: &[f32]) -> Vec<i32> {
    numbers.iter().map(|it| *it as i32).collect()
}

fn program(case: &Case) -> Program {
    let wide = |dtype| if dtype == DType::Bf16 { DType::F32 } else { dtype };
    let inputs = case.inputs.iter().map(|it| (wide(it.dtype), it.numbers.len()));
    let results = case.results.iter().map(|it| (wide(it.0), it.1));
    let n_inputs = case.inputs.len();
    let loss = n_inputs + case.results.len();
    let sizes: Vec<(DType, usize)> = inputs.chain(results).chain([(DType::F32, 1)]).collect();
    let mut arena_bytes = 0;
    let buffer = |(dtype, n_elements): &(DType, usize)| {
        let offset = arena_bytes;
        arena_bytes += (n_elements * 4).next_multiple_of(64);
        Buffer { offset, n_elements: *n_elements, dtype: *dtype }
    };
    let buffers: Vec<Buffer> = sizes.iter().map(buffer).collect();
    let tile = |shape: &[usize]| Tile::new(Shape::new(shape), Tiling::replicated(0));
    let input = |number: usize| Input {
        name: format!("in{number}").into(),
        dtype: sizes[number].0,
        tile: tile(&[sizes[number].1]),
        buffer: number,
        n_classes: None,
        ignored_label: None,
        is_queried: true,
    };
    let output = |number: usize| Output {
        name: format!("out{number}").into(),
        dtype: sizes[number].0,
        tile: if number == loss { tile(&[]) } else { tile(&[sizes[number].1]) },
        buffer: number,
        rows: Rows::Mixed,
    };
    let tables = Tables {
        name: "case".into(),
        mesh: Mesh::new(1),
        precision: Precision::F32,
        arena_bytes,
        entries: vec![Entry::only(n_inputs, 1 + loss - n_inputs, 0, 0).trained(loss, 0)].into(),
        inputs: (0..n_inputs).map(input).collect(),
        parameters: vec![].into(),
        states: vec![].into(),
        constants: vec![].into(),
        scalars: vec![RunScalar::LearningRate, RunScalar::OneMinusPower { base: BASE }].into(),
        accumulate_loss: None,
        accumulate: 1,
        ema: None,
        non_finite: NonFinite::Stop,
        outputs: [loss].into_iter().chain(n_inputs..loss).map(output).collect(),
        buffers: buffers.into(),
        accumulate_bytes: 0,
    };
    let step =
        Step { kernel: 0, inputs: (0..n_inputs).collect(), results: (n_inputs..loss).collect() };
    let kernels = vec![case.kernel.clone()].into();
    Program { tables, kernels, train: vec![vec![step]], accumulate: vec![], evaluate: vec![vec![]] }
}
