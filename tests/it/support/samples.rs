//! Samples of operators as programs. Parameters are the operands, outputs the results, and the loss
//! depends on every element of both.

use soybean::{
    Tensor,
    eager::{self, Argument as Eager},
    runtime::{Array, View},
};
use soybean_compiler::{
    Argument, Builder, Compiled, Optimizer, Options, Sample, SampleArgument, SampleFunction,
    SearchRequest, Value,
};
use soybean_plan::{DType, Init, Precision};

use soybean_test_support::models::{call, finish_with, numbers, single};

use super::joined;

/// The weight of the plain sum of every operand in the loss, so that each operand has a gradient.
pub(crate) const BASE: f64 = 0.5;

/// A term of every loss that all numbers of devices can split, for operands that cannot be split.
const SPLITTABLE: [f32; 12] = [0.0; 12];

/// A sample with numbers for its tensors, and the results of the eager tensor.
pub(crate) struct Trial<'a> {
    pub(crate) sample: &'a Sample,
    pub(crate) operands: Vec<Vec<f64>>,
    pub(crate) result_shape: Vec<usize>,
    pub(crate) result: Vec<f64>,
    pub(crate) weights: Vec<f64>,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(sample: &'a Sample) -> Self {
        let operands: Vec<Vec<f64>> =
            leaves(sample).into_iter().enumerate().map(|(seed, it)| operand(it, seed)).collect();
        let (result_shape, result) = eager::scope(|| {
            let result = eager_result(sample, &operands);
            (result.shape(), result.to_vec())
        });
        let weights = numbers(result.len(), 17);
        Self { sample, operands, result_shape, result, weights }
    }

    /// Returns the elements of each tensor of labels.
    fn labels(&self) -> Vec<Vec<i32>> {
        let labels = leaves(self.sample).into_iter().zip(&self.operands);
        let labels = labels.filter(|(it, _)| matches!(it, SampleArgument::Labels { .. }));
        #[expect(clippy::cast_possible_truncation, reason = "labels are small integers")]
        let integers = |elements: &Vec<f64>| elements.iter().map(|it| *it as i32).collect();
        labels.map(|(_, elements)| integers(elements)).collect()
    }

    /// Returns the operands by name, and the loss without the weighted sum of the other results.
    /// `n` is the number of the sample in the program.
    fn build(&self, builder: &mut Builder, number: usize, part: Value) -> Part {
        let weights = builder.input(&format!("weights{number}"), DType::F32, &self.result_shape);
        let (mut loss, mut tensors, mut parameters) = (part, Vec::new(), Vec::new());
        for (leaf, elements) in leaves(self.sample).into_iter().zip(&self.operands) {
            let name = format!("operand{number}_{}", tensors.len());
            let mut keep = |shape: &[usize]| {
                let array =
                    Array { shape: shape.to_vec(), data: single(elements), ..Array::default() };
                parameters.push((name.clone(), array));
            };
            match leaf {
                SampleArgument::Tensor { shape, .. } => {
                    keep(shape);
                    let value = builder.parameter(&name, shape, Init::Constant(0.0));
                    let sum = call(builder, "sum", &[Argument::Tensor(value), Argument::All]);
                    let base =
                        call(builder, "mul", &[Argument::Tensor(sum), Argument::Float(BASE)]);
                    loss = plus(builder, loss, base);
                    tensors.push(value);
                }
                SampleArgument::Buffer { shape, .. } => {
                    keep(shape);
                    tensors.push(builder.buffer(&name, shape, Init::Constant(0.0)));
                }
                SampleArgument::Labels { shape, .. } => {
                    tensors.push(builder.input(&name, DType::I32, shape));
                }
                _ => {}
            }
        }
        let mut tensors = tensors.into_iter();
        let arguments: Vec<Argument> = self
            .sample
            .arguments
            .iter()
            .map(|it| compiled_argument(builder, it, &mut tensors))
            .collect();
        let result = builder.call(self.sample.operator, &arguments);
        let result = joined::joined(builder, result.expect("samples have no faults"));
        let product = call(builder, "mul", &[Argument::Tensor(result), Argument::Tensor(weights)]);
        let sum = call(builder, "sum", &[Argument::Tensor(product), Argument::All]);
        Part { loss: plus(builder, loss, sum), result, parameters }
    }
}

/// The part of a program that computes one sample.
struct Part {
    loss: Value,
    result: Value,
    parameters: Vec<(String, Array)>,
}

/// The inputs of a program.
pub(crate) struct Batch {
    weights: Vec<Vec<f32>>,
    labels: Vec<Vec<Vec<i32>>>,
}

impl Batch {
    pub(crate) fn views(&self) -> Vec<View<'_>> {
        let of_trials = self.weights.iter().zip(&self.labels).flat_map(|(weights, labels)| {
            [View::F32(weights)].into_iter().chain(labels.iter().map(|it| View::I32(it)))
        });
        [View::F32(&SPLITTABLE)].into_iter().chain(of_trials).collect()
    }
}

/// Builds one program for all samples; its outputs are their results.
pub(crate) struct SamplesProgram {
    pub(crate) compiled: Compiled,
    /// Returns the operands.
    pub(crate) parameters: Vec<(String, Array)>,
    pub(crate) batch: Batch,
}

impl SamplesProgram {
    pub(crate) fn new(trials: &[Trial<'_>], n_gpus: usize, precision: Precision) -> Self {
        Self::searched(trials, n_gpus, precision, SearchRequest::default())
    }

    pub(crate) fn searched(
        trials: &[Trial<'_>],
        n_gpus: usize,
        precision: Precision,
        search: SearchRequest,
    ) -> Self {
        let mut builder = Builder::new();
        let splittable = builder.input("splittable", DType::F32, &[SPLITTABLE.len()]);
        let mut loss = call(&mut builder, "sum", &[Argument::Tensor(splittable), Argument::All]);
        let (mut outputs, mut parameters) = (Vec::new(), Vec::new());
        for (number, trial) in trials.iter().enumerate() {
            let part = trial.build(&mut builder, number, loss);
            loss = part.loss;
            outputs.push((format!("result{number}"), part.result));
            parameters.extend(part.parameters);
        }
        let (name, optimizer) = ("samples".to_owned(), Optimizer::default());
        let options = Options { name, n_gpus, search, precision, optimizer };
        let compiled = finish_with(builder, loss, &outputs, &options);
        let weights = trials.iter().map(|it| single(&it.weights)).collect();
        let labels = trials.iter().map(Trial::labels).collect();
        Self { compiled, parameters, batch: Batch { weights, labels } }
    }
}

/// Returns the arguments of a sample, with arrays flattened.
pub(crate) fn leaves(sample: &Sample) -> Vec<&SampleArgument> {
    let leaves = |it: &'static SampleArgument| match it {
        SampleArgument::Array(items) => items.iter().collect(),
        other => vec![other],
    };
    sample.arguments.iter().flat_map(leaves).collect()
}

pub(crate) fn compiled_argument(
    builder: &mut Builder,
    argument: &SampleArgument,
    tensors: &mut impl Iterator<Item = Value>,
) -> Argument {
    match argument {
        SampleArgument::Tensor { .. }
        | SampleArgument::Buffer { .. }
        | SampleArgument::Labels { .. } => Argument::Tensor(tensors.next().expect("one for each")),
        SampleArgument::Array(items) => {
            Argument::List(items.iter().map(|it| compiled_argument(builder, it, tensors)).collect())
        }
        SampleArgument::Integer(number) => Argument::Integer(*number),
        SampleArgument::Float(number) => Argument::Float(*number),
        SampleArgument::List(numbers) => {
            Argument::List(numbers.iter().map(|it| Argument::Integer(*it)).collect())
        }
        SampleArgument::Boolean(value) => Argument::Boolean(*value),
        SampleArgument::Text(text) => Argument::Text((*text).to_owned()),
        SampleArgument::Function(function) => function.build(builder),
        SampleArgument::All => Argument::All,
    }
}

fn plus(builder: &mut Builder, sum: Value, term: Value) -> Value {
    call(builder, "add", &[Argument::Tensor(sum), Argument::Tensor(term)])
}

pub(crate) fn is_tensor(argument: &SampleArgument) -> bool {
    matches!(argument, SampleArgument::Tensor { .. })
}

pub(crate) fn is_buffer(argument: &SampleArgument) -> bool {
    matches!(argument, SampleArgument::Buffer { .. })
}

/// Returns numbers for one argument, exact in single precision; none for settings.
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
        | SampleArgument::Function(_)
        | SampleArgument::All => Vec::new(),
    }
}

pub(crate) fn eager_result(sample: &Sample, operands: &[Vec<f64>]) -> Tensor {
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
        SampleArgument::Function(function) => Eager::Function(match function {
            SampleFunction::LinearBias => |score, head, query, key| {
                let distance = query - key;
                let changed = score - distance / (head + 2.0);
                changed.where_(distance.remainder(2.0).eq(0.0), f64::NEG_INFINITY)
            },
            SampleFunction::SoftCap => |score, _, query, key| {
                let is_earlier = key.floor_divide(4.0).lt(query.floor_divide(4.0));
                ((score / 2.0).tanh() * 2.0).where_(is_earlier, f64::NEG_INFINITY)
            },
        }),
        SampleArgument::All => Eager::All,
    };
    let arguments: Vec<Eager> = sample.arguments.iter().map(&mut argument).collect();
    joined::eager_joined(&eager::call(sample.operator, &arguments))
}
