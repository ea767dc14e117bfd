//! Every operator of the compiler's list: programs on 1 to 6 devices against the eager tensor, values and gradients.
//!
//! No operator is named here except where it is exempt: samples and names come from the two tables.

#[path = "support/joined.rs"]
mod joined;
#[path = "support/models.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod models;

use models::{SEED, call, finish_with, numbers, single, trainer};
use soybean::{
    Tensor,
    eager::{self, Argument as Eager},
    runtime::{Array, View},
};
use soybean_compiler::{
    Argument, Builder, Optimizer, Options, Sample, SampleArgument, Strategy, graph::Value,
    operator_names, operator_samples,
};
use soybean_plan::{DType, Init, Precision};

/// Weight of the plain sum of every operand in the loss, so that each is reached whatever the operator does with it.
const BASE: f64 = 0.5;

/// A part of every loss that all numbers of devices can split, for operands of which they can split nothing.
const SPLITTABLE: [f32; 12] = [0.0; 12];

/// Not tensors: `dim` gives an integer, which the eager tensor has as a method.
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
    for sample in operator_samples() {
        let trial = Trial::new(&sample);
        let exact = [1, 2, 3, 4, 6].map(|it| (it, Precision::F32));
        for (n_gpus, precision) in exact.into_iter().chain([1, 4].map(|it| (it, Precision::Bf16))) {
            if let Err(fault) = trial.check(n_gpus, precision) {
                faults.push(format!("{sample:?} on {n_gpus} devices in {precision}: {fault}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A sample with numbers for its tensors, and what the eager tensor makes of them.
struct Trial<'a> {
    sample: &'a Sample,
    operands: Vec<Vec<f64>>,
    result_shape: Vec<usize>,
    result: Vec<f64>,
    weights: Vec<f64>,
}

impl<'a> Trial<'a> {
    fn new(sample: &'a Sample) -> Self {
        let operands: Vec<Vec<f64>> =
            leaves(sample).into_iter().enumerate().map(|(seed, it)| operand(it, seed)).collect();
        let (result_shape, result) = eager::scope(|| {
            let result = eager_result(sample, &operands);
            (result.shape(), result.to_vec())
        });
        let weights = numbers(result.len(), 17);
        Self { sample, operands, result_shape, result, weights }
    }

    /// The sum of the results with weights that tell their elements apart, and of the operands.
    fn eager_loss(&self, operands: &[Vec<f64>]) -> f64 {
        eager::scope(|| {
            let result = eager::in_training(SEED, 1, || eager_result(self.sample, operands));
            let weighted = (result * Tensor::new(&self.result_shape, &self.weights)).sum(..).item();
            let tensors =
                leaves(self.sample).into_iter().zip(operands).filter(|(it, _)| is_tensor(it));
            weighted + BASE * tensors.flat_map(|(_, elements)| elements).sum::<f64>()
        })
    }

    fn slope(&self, position: usize, element: usize) -> f64 {
        const DISTANCE: f64 = 1e-5;
        if WITHOUT_GRADIENT.contains(&self.sample.operator) {
            return BASE;
        }
        let loss_at = |offset| {
            let mut operands = self.operands.clone();
            operands[position][element] += offset;
            self.eager_loss(&operands)
        };
        (loss_at(DISTANCE) - loss_at(-DISTANCE)) / (2.0 * DISTANCE)
    }

    /// One step of a program whose parameters are the operands: its result, and its update against finite differences.
    fn check(&self, n_gpus: usize, precision: Precision) -> Result<(), String> {
        let (compiled, parameters) = self.compile(n_gpus, precision);
        let close = |found: &[f32], expected: &[f64]| close(found, expected, precision);
        let failed = |error: soybean::Error| error.to_string();
        let mut trainer = trainer(&compiled, 1.0);
        trainer.set_parameters(&parameters).map_err(failed)?;
        let (weights, labels) = (single(&self.weights), self.labels());
        let views: Vec<View<'_>> = [View::F32(&weights), View::F32(&SPLITTABLE)]
            .into_iter()
            .chain(labels.iter().map(|it| View::I32(it)))
            .collect();
        let result = trainer.evaluate(&views).map_err(failed)?.outputs.remove(0);
        if result.shape != self.result_shape {
            return Err(format!(
                "expected shape {:?}, found {:?}",
                self.result_shape, result.shape
            ));
        }
        close(&result.data, &self.result).map_err(|fault| format!("result, {fault}"))?;
        trainer.step(&views).map_err(failed)?;
        let after = trainer.parameters().map_err(failed)?;
        let leaves = leaves(self.sample);
        let positions =
            (0..self.operands.len()).filter(|it| is_tensor(leaves[*it]) || is_buffer(leaves[*it]));
        for (position, (_, after)) in positions.zip(after) {
            if is_buffer(leaves[position]) {
                continue;
            }
            let slopes: Vec<f64> =
                (0..after.data.len()).map(|element| self.slope(position, element)).collect();
            let before = single(&self.operands[position]);
            let updates: Vec<f32> =
                before.iter().zip(&after.data).map(|(before, after)| before - after).collect();
            close(&updates, &slopes)
                .map_err(|fault| format!("gradient of argument {position}, {fault}"))?;
        }
        Ok(())
    }

    /// The elements of each tensor of labels.
    fn labels(&self) -> Vec<Vec<i32>> {
        let labels = leaves(self.sample).into_iter().zip(&self.operands);
        let labels = labels.filter(|(it, _)| matches!(it, SampleArgument::Labels { .. }));
        #[expect(clippy::cast_possible_truncation, reason = "labels are small integers")]
        let integers = |elements: &Vec<f64>| elements.iter().map(|it| *it as i32).collect();
        labels.map(|(_, elements)| integers(elements)).collect()
    }

    fn compile(
        &self,
        n_gpus: usize,
        precision: Precision,
    ) -> (soybean_compiler::Compiled, Vec<(String, Array)>) {
        let mut builder = Builder::new();
        let weights = builder.input("weights", DType::F32, &self.result_shape);
        let splittable = builder.input("splittable", DType::F32, &[SPLITTABLE.len()]);
        let mut parameters = Vec::new();
        let nothing = call(&mut builder, "sum", &[Argument::Tensor(splittable), Argument::All]);
        let mut loss = nothing;
        let mut tensors = Vec::new();
        for (leaf, elements) in leaves(self.sample).into_iter().zip(&self.operands) {
            match leaf {
                SampleArgument::Tensor { shape, .. } => {
                    let name = format!("operand{}", tensors.len());
                    let value = builder.parameter(&name, shape, Init::Constant(0.0));
                    parameters
                        .push((name, Array { shape: shape.to_vec(), data: single(elements) }));
                    let sum = call(&mut builder, "sum", &[Argument::Tensor(value), Argument::All]);
                    let base =
                        call(&mut builder, "mul", &[Argument::Tensor(sum), Argument::Float(BASE)]);
                    loss = plus(&mut builder, loss, base);
                    tensors.push(value);
                }
                SampleArgument::Buffer { shape, .. } => {
                    let name = format!("operand{}", tensors.len());
                    tensors.push(builder.buffer(&name, shape, Init::Constant(0.0)));
                    parameters
                        .push((name, Array { shape: shape.to_vec(), data: single(elements) }));
                }
                SampleArgument::Labels { shape, .. } => {
                    let name = format!("labels{}", tensors.len());
                    tensors.push(builder.input(&name, DType::I32, shape));
                }
                _ => {}
            }
        }
        let mut tensors = tensors.into_iter();
        let arguments: Vec<Argument> =
            self.sample.arguments.iter().map(|it| compiled_argument(it, &mut tensors)).collect();
        let result = builder.call(self.sample.operator, &arguments);
        let result = joined::joined(&mut builder, result.expect("samples have no faults"));
        let product =
            call(&mut builder, "mul", &[Argument::Tensor(result), Argument::Tensor(weights)]);
        let sum = call(&mut builder, "sum", &[Argument::Tensor(product), Argument::All]);
        let loss = plus(&mut builder, loss, sum);
        let outputs = [("result".to_owned(), result)];
        let options = Options {
            name: "sample".to_owned(),
            n_gpus,
            strategy: Strategy::Auto,
            precision,
            optimizer: Optimizer::default(),
        };
        (finish_with(builder, loss, &outputs, &options), parameters)
    }
}

/// The arguments of a sample, those of arrays one by one.
fn leaves(sample: &Sample) -> Vec<&SampleArgument> {
    let leaves = |it: &'static SampleArgument| match it {
        SampleArgument::Array(items) => items.iter().collect(),
        other => vec![other],
    };
    sample.arguments.iter().flat_map(leaves).collect()
}

fn compiled_argument(
    argument: &SampleArgument,
    tensors: &mut impl Iterator<Item = Value>,
) -> Argument {
    match argument {
        SampleArgument::Tensor { .. }
        | SampleArgument::Buffer { .. }
        | SampleArgument::Labels { .. } => Argument::Tensor(tensors.next().expect("one for each")),
        SampleArgument::Array(items) => {
            Argument::List(items.iter().map(|it| compiled_argument(it, tensors)).collect())
        }
        SampleArgument::Integer(number) => Argument::Integer(*number),
        SampleArgument::Float(number) => Argument::Float(*number),
        SampleArgument::List(numbers) => {
            Argument::List(numbers.iter().map(|it| Argument::Integer(*it)).collect())
        }
        SampleArgument::Boolean(value) => Argument::Boolean(*value),
        SampleArgument::Text(text) => Argument::Text((*text).to_owned()),
        SampleArgument::All => Argument::All,
    }
}

fn plus(builder: &mut Builder, sum: Value, term: Value) -> Value {
    call(builder, "add", &[Argument::Tensor(sum), Argument::Tensor(term)])
}

fn is_tensor(argument: &SampleArgument) -> bool {
    matches!(argument, SampleArgument::Tensor { .. })
}

fn is_buffer(argument: &SampleArgument) -> bool {
    matches!(argument, SampleArgument::Buffer { .. })
}

/// Numbers for one argument, such as single precision can hold; none for settings.
fn operand(argument: &SampleArgument, seed: usize) -> Vec<f64> {
    match argument {
        SampleArgument::Tensor { shape, low, high }
        | SampleArgument::Buffer { shape, low, high } => {
            let spread = numbers(shape.iter().product(), seed);
            let scaled: Vec<f64> =
                spread.iter().map(|it| low + (high - low) * (it + 1.0) / 2.0).collect();
            single(&scaled).into_iter().map(f64::from).collect()
        }
        SampleArgument::Labels { shape, n_classes } => (0..shape.iter().product::<usize>())
            .map(|it| ((it * 5 + 1) % n_classes) as f64)
            .collect(),
        SampleArgument::Integer(_)
        | SampleArgument::Float(_)
        | SampleArgument::List(_)
        | SampleArgument::Boolean(_)
        | SampleArgument::Text(_)
        | SampleArgument::Array(_)
        | SampleArgument::All => Vec::new(),
    }
}

fn eager_result(sample: &Sample, operands: &[Vec<f64>]) -> Tensor {
    let is_given = |it: &SampleArgument| {
        matches!(it, SampleArgument::Labels { .. }) || is_tensor(it) || is_buffer(it)
    };
    let mut operands =
        leaves(sample).into_iter().zip(operands).filter(|it| is_given(it.0)).map(|it| it.1);
    let mut tensor = |shape: &[usize]| Tensor::new(shape, operands.next().expect("one for each"));
    let mut argument = |argument: &SampleArgument| match argument {
        SampleArgument::Tensor { shape, .. }
        | SampleArgument::Buffer { shape, .. }
        | SampleArgument::Labels { shape, .. } => Eager::Tensor(tensor(shape)),
        SampleArgument::Array(items) => {
            let shape = |it: &SampleArgument| match it {
                SampleArgument::Tensor { shape, .. } | SampleArgument::Labels { shape, .. } => {
                    *shape
                }
                other => unreachable!("arrays are of tensors, found {other:?}"),
            };
            Eager::Tensors(items.iter().map(|it| tensor(shape(it))).collect())
        }
        SampleArgument::Integer(number) => Eager::Integer(*number),
        SampleArgument::Float(number) => Eager::Float(*number),
        SampleArgument::List(numbers) => Eager::List(numbers.to_vec()),
        SampleArgument::Boolean(value) => Eager::Boolean(*value),
        SampleArgument::Text(text) => Eager::Text((*text).to_owned()),
        SampleArgument::All => Eager::All,
    };
    let arguments: Vec<Eager> = sample.arguments.iter().map(&mut argument).collect();
    joined::eager_joined(&eager::call(sample.operator, &arguments))
}

/// Equal up to the rounding of some hundred operations in single precision, or of some ten numbers of `bf16`, relative to the largest element.
fn close(found: &[f32], expected: &[f64], precision: Precision) -> Result<(), String> {
    let tolerance = match precision {
        Precision::F32 | Precision::Tf32 => 2e-5,
        Precision::Bf16 => 2e-2,
    };
    if found.len() != expected.len() {
        return Err(format!("expected {} elements, found {}", expected.len(), found.len()));
    }
    let scale = expected.iter().fold(1.0, |scale: f64, it| scale.max(it.abs()));
    // Compared so that NaN is not close to anything.
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
