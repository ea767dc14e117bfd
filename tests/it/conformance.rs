//! Every operator of the compiler's list: values and gradients of programs on 1 to 6 devices
//! against the eager tensor.
//!
//! Only exempt operators are named here; samples and names come from the two tables.

use std::{
    collections::BTreeMap,
    sync::{LazyLock, OnceLock},
};

use crate::support::samples::{
    BASE, SamplesProgram, Trial, eager_result, is_buffer, is_tensor, leaves,
};
use soybean::{Tensor, eager};
use soybean_compiler::{Padding, SearchRequest, operator_names, operator_samples};
use soybean_plan::Precision;
use soybean_test_support::models::{SEED, single, trainer};

/// Operators whose result is not a tensor: `dim` returns an integer, and is a method of the eager
/// tensor.
const WITHOUT_RESULT: [&str; 1] = ["dim"];

/// Operators whose gradient is not the derivative of their value.
const WITHOUT_GRADIENT: [&str; 1] = ["detach"];

#[test]
fn the_eager_tensor_and_the_compiler_know_the_same_operators() {
    let mut compiled = operator_names();
    compiled.retain(|name| !WITHOUT_RESULT.contains(name));
    let mut eager = eager::operator_names();
    compiled.sort_unstable();
    eager.sort_unstable();
    assert_eq!(compiled, eager);
    for name in compiled {
        assert!(
            operator_samples().iter().any(|sample| sample.operator == name),
            "{name} has no sample"
        );
    }
}

#[test]
fn values_and_gradients_are_those_of_the_eager_tensor() {
    let mut faults = Vec::new();
    for (number, sample) in operator_samples().into_iter().enumerate() {
        let trial = Trial::new(&sample);
        let slopes = slopes_of(number, &trial);
        let exact = [1, 2, 3, 4, 6].map(|it| (it, Precision::F32));
        for (n_gpus, precision) in exact.into_iter().chain([1, 4].map(|it| (it, Precision::Bf16))) {
            if let Err(fault) = check(&trial, slopes, n_gpus, precision) {
                faults.push(format!("{sample:?} on {n_gpus} devices in {precision}: {fault}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Padding is filled with NaN or an infinity wherever it is not zero, so that a result that depends
/// on it is wrong.
#[test]
fn padding_reaches_no_result_and_no_gradient() {
    let mut faults = Vec::new();
    // From the last one, so that two tests at once find the slopes of half of the samples each.
    for (number, sample) in operator_samples().into_iter().enumerate().rev() {
        let trial = Trial::new(&sample);
        let slopes = slopes_of(number, &trial);
        // Pins name dims that the ranks divide.
        let n_gpus: &[usize] = if sample.operator == "tiled" { &[4] } else { &[5, 7, 4, 7] };
        for (&n_gpus, poison) in
            n_gpus.iter().zip([f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::NAN])
        {
            let search = SearchRequest {
                padding: Padding::All,
                poison: Some(poison),
                ..SearchRequest::default()
            };
            let program = SamplesProgram::searched(
                std::slice::from_ref(&trial),
                n_gpus,
                Precision::F32,
                search,
            );
            if let Err(fault) = check_program(&trial, slopes, program, Precision::F32) {
                faults.push(format!("{sample:?} on {n_gpus} devices with {poison}: {fault}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the sum of the operands and of the results, weighted so that their elements differ.
fn eager_loss(trial: &Trial<'_>, operands: &[Vec<f64>]) -> f64 {
    eager::scope(|| {
        let result = eager::in_training(SEED, 1, || eager_result(trial.sample, operands));
        let weighted = (result * Tensor::new(&trial.result_shape, &trial.weights)).sum(..).item();
        let tensors =
            leaves(trial.sample).into_iter().zip(operands).filter(|(it, _)| is_tensor(it));
        weighted + BASE * tensors.flat_map(|(_, elements)| elements).sum::<f64>()
    })
}

/// The derivatives of a loss by each element of each operand that has a gradient, by its position.
type Slopes = BTreeMap<usize, Vec<f64>>;

/// Returns the slopes of the sample with this number. They are computed once for all tests.
fn slopes_of(number: usize, trial: &Trial<'_>) -> &'static Slopes {
    static SLOPES: LazyLock<Vec<OnceLock<Slopes>>> =
        LazyLock::new(|| operator_samples().iter().map(|_| OnceLock::new()).collect());
    SLOPES[number].get_or_init(|| slopes(trial))
}

fn slopes(trial: &Trial<'_>) -> Slopes {
    let tensors = leaves(trial.sample).into_iter().zip(&trial.operands).enumerate();
    tensors
        .filter(|(_, (leaf, _))| is_tensor(leaf))
        .map(|(position, (_, elements))| {
            (position, (0..elements.len()).map(|it| slope(trial, position, it)).collect())
        })
        .collect()
}

fn slope(trial: &Trial<'_>, position: usize, element: usize) -> f64 {
    const DISTANCE: f64 = 1e-5;
    if WITHOUT_GRADIENT.contains(&trial.sample.operator) {
        return BASE;
    }
    let loss_at = |offset| {
        let mut operands = trial.operands.clone();
        operands[position][element] += offset;
        eager_loss(trial, &operands)
    };
    (loss_at(DISTANCE) - loss_at(-DISTANCE)) / (2.0 * DISTANCE)
}

/// Runs one step of a program whose parameters are the operands, and compares its result and its
/// update with the slopes.
fn check(
    trial: &Trial<'_>,
    slopes: &Slopes,
    n_gpus: usize,
    precision: Precision,
) -> Result<(), String> {
    check_program(
        trial,
        slopes,
        SamplesProgram::new(std::slice::from_ref(trial), n_gpus, precision),
        precision,
    )
}

fn check_program(
    trial: &Trial<'_>,
    slopes: &Slopes,
    program: SamplesProgram,
    precision: Precision,
) -> Result<(), String> {
    let SamplesProgram { compiled, parameters, batch } = program;
    let close = |found: &[f32], expected: &[f64]| close(found, expected, precision);
    let failed = |error: soybean::Error| error.to_string();
    let mut trainer = trainer(&compiled, 1.0);
    trainer.set_parameters(&parameters).map_err(failed)?;
    let views = batch.views();
    let result = trainer.evaluate(&views).map_err(failed)?.outputs.remove(0);
    if result.shape != trial.result_shape {
        return Err(format!("expected shape {:?}, found {:?}", trial.result_shape, result.shape));
    }
    close(&result.data, &trial.result).map_err(|fault| format!("result, {fault}"))?;
    trainer.step(&views).map_err(failed)?;
    let after = trainer.parameters().map_err(failed)?;
    let leaves = leaves(trial.sample);
    let positions =
        (0..trial.operands.len()).filter(|it| is_tensor(leaves[*it]) || is_buffer(leaves[*it]));
    for (position, (_, after)) in positions.zip(after) {
        let Some(slopes) = slopes.get(&position) else { continue };
        let before = single(&trial.operands[position]);
        let updates: Vec<f32> =
            before.iter().zip(&after.data).map(|(before, after)| before - after).collect();
        close(&updates, slopes)
            .map_err(|fault| format!("gradient of argument {position}, {fault}"))?;
    }
    Ok(())
}

/// Compares relative to the largest element. The tolerance allows some hundred roundings in single
/// precision, or some ten in `bf16`.
fn close(found: &[f32], expected: &[f64], precision: Precision) -> Result<(), String> {
    let tolerance = match precision {
        Precision::F32 | Precision::Tf32 => 2e-5,
        Precision::Bf16 => 2e-2,
    };
    if found.len() != expected.len() {
        return Err(format!("expected {} elements, found {}", expected.len(), found.len()));
    }
    let scale = expected.iter().fold(1.0, |scale: f64, it| scale.max(it.abs()));
    // NaN is not close to any number.
    let is_close =
        |(found, expected): (&f32, &f64)| (f64::from(*found) - expected).abs() <= tolerance * scale;
    match found.iter().zip(expected).position(|it| !is_close(it)) {
        Some(element) => Err(format!(
            "element {element}: expected {}, found {}",
            expected[element], found[element]
        )),
        None => Ok(()),
    }
}
