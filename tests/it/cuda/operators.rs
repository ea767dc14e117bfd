//! Tests of every operator's samples on GPUs against the CPU.
//!
//! Many samples share one program, since compiling for virtual GPUs takes longer than running. The
//! numbers of ranks alternate.

use std::sync::Arc;

use soybean::{
    Config, Device,
    runtime::{Array, Trainer},
};
use soybean_compiler::operator_samples;
use soybean_plan::Precision;

use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus};

use crate::support::samples::{SamplesProgram, Trial};

/// Number of samples in a program.
const N_SAMPLES: usize = 16;

/// Returns results and operands after one step.
fn run(program: &SamplesProgram, device: Device) -> Vec<(String, Array)> {
    let config = Config { device, learning_rate: 1.0, ..Config::default() };
    let model = Arc::new(program.compiled.program.clone());
    let mut trainer = Trainer::new_shared(model, config).unwrap();
    trainer.set_parameters(&program.parameters).unwrap();
    let views = program.batch.views();
    let tables = &program.compiled.program.tables;
    let evaluation = trainer.evaluate(&views).unwrap();
    assert_eq!(trainer.moved_bytes(), tables.entries[0].bytes);
    let loss = trainer.step(&views).unwrap();
    assert_eq!(trainer.moved_bytes(), tables.train_bytes());
    let losses = Array { shape: vec![2], data: vec![evaluation.loss, loss], ..Array::default() };
    let results = evaluation.outputs.into_iter().enumerate();
    let results = results.map(|(number, it)| (format!("result{number}"), it));
    [("losses".to_owned(), losses)]
        .into_iter()
        .chain(results)
        .chain(trainer.parameters().unwrap())
        .collect()
}

/// Returns the tolerance relative to the largest number of a tensor: reordered sums of some hundred
/// terms, and a `bf16` number rounded the other way.
fn tolerance(precision: Precision) -> f32 {
    match precision {
        Precision::F32 | Precision::Tf32 => 1e-5,
        Precision::Bf16 => 1e-2,
    }
}

/// Describes the difference between two devices, if there is one.
fn difference(found: &Array, expected: &Array, tolerance: f32) -> Option<String> {
    assert_eq!(found.shape, expected.shape);
    let scale = expected.data.iter().fold(1.0_f32, |scale, it| scale.max(it.abs()));
    // Formulated so that NaN is never close.
    let is_close = |(found, expected): (&f32, &f32)| (found - expected).abs() <= tolerance * scale;
    let element = found.data.iter().zip(&expected.data).position(|it| !is_close(it))?;
    let (found, expected) = (found.data[element], expected.data[element]);
    Some(format!("element {element}: expected {expected}, found {found}"))
}

/// Checks all samples, with the number of ranks from `turns`.
fn samples_are_right(machine: &Machine, turns: &[usize], precision: Precision) {
    let samples = operator_samples();
    let mut faults = Vec::new();
    for (samples, n_ranks) in samples.chunks(N_SAMPLES).zip(turns.iter().cycle()) {
        let trials: Vec<Trial<'_>> = samples.iter().map(Trial::new).collect();
        // Pins name dims that the ranks divide.
        let has_pins = samples.iter().any(|it| it.operator == "tiled");
        let n_ranks = if has_pins { 4 } else { *n_ranks };
        let program = SamplesProgram::new(&trials, n_ranks, precision);
        let (found, expected) = (run(&program, Device::Cuda), run(&program, Device::Cpu));
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            let difference = difference(found, expected, tolerance(precision));
            let fault = difference.map(|it| {
                let number = name.trim_start_matches(|it: char| it.is_alphabetic());
                let number = number.split('_').next().and_then(|it| it.parse::<usize>().ok());
                let sample = number.map(|it| format!("{:?}", samples[it]));
                format!("{name} of {sample:?} on {n_ranks} ranks: {it}")
            });
            faults.extend(fault);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(machine.n_complaints(), 0);
}

#[test]
fn operators_with_collectives() {
    on_virtual_gpus("cuda::operators::operators_with_collectives", &[], |machine| {
        samples_are_right(machine, &[1, 2, 3, 4, 6], Precision::F32);
    });
}

#[test]
fn operators_with_copies() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "2")];
    on_virtual_gpus("cuda::operators::operators_with_copies", &settings, |machine| {
        samples_are_right(machine, &[8, 6, 4, 3], Precision::F32);
    });
}

#[test]
fn operators_in_bf16() {
    on_virtual_gpus("cuda::operators::operators_in_bf16", &[], |machine| {
        samples_are_right(machine, &[4, 1, 2], Precision::Bf16);
    });
}
