//! Compares every operator and optimizer with values that NumPy found: the eager tensor, and
//! programs on one and on several devices.
//!
//! `tests/reference/make_golden.py` writes the files and says how.

mod optimizers;

use soybean::{
    Tensor,
    eager::{self, Argument as Eager},
    runtime::{Array, View},
};
use soybean_compiler::{Argument, Builder, Compiled, Optimizer, Strategy, operator_names};
use soybean_plan::{DType, Init};

use crate::support::joined;
use soybean_test_support::models::{SEED, call, finish, single, trainer};

/// A term of every loss that all numbers of devices can split, for operands that cannot be split.
const SPLITTABLE: [f32; 12] = [0.0; 12];

/// Operators whose result is not a tensor: `dim` returns an integer.
const WITHOUT_RESULT: [&str; 1] = ["dim"];

/// Operators without golden values: `detach` has no gradient, `soybean_plan::noise` defines
/// `dropout`, `rand_like` and `randn_like`, and `assign`, `probe` and `tiled` return an operand.
/// The file has no functions, and `flex_attention.rs` compares those of scores with formulas.
const WITHOUT_GOLDEN: [&str; 8] =
    ["assign", "detach", "dropout", "flex_attention", "probe", "rand_like", "randn_like", "tiled"];

/// Operators whose golden values are those of training; `training_and_evaluation.rs` tests
/// evaluations.
const OTHER_IN_EVALUATION: [&str; 1] = ["batch_norm"];

/// A shape and its elements in row-major order.
#[derive(Clone)]
struct Numbers {
    shape: Vec<usize>,
    elements: Vec<f64>,
}

enum Given {
    Tensor(Numbers),
    Buffer(Numbers),
    Labels(Numbers),
    /// An array of the next arguments, as many as this.
    Array(usize),
    Other(Argument, Eager),
}

/// A call, its result, and the gradients of the weighted sum of the result with respect to each
/// tensor.
struct Case {
    operator: String,
    arguments: Vec<Given>,
    result: Numbers,
    weights: Numbers,
    gradients: Vec<Numbers>,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in golden().lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        if kind == "operator" {
            let none = Numbers { shape: Vec::new(), elements: Vec::new() };
            cases.push(Case {
                operator: rest.to_owned(),
                arguments: Vec::new(),
                result: none.clone(),
                weights: none,
                gradients: Vec::new(),
            });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match kind {
            "result" => case.result = numbers(rest),
            "weights" => case.weights = numbers(rest),
            "gradient" => case.gradients.push(numbers(rest)),
            _ => case.arguments.push(argument(kind, rest)),
        }
    }
    cases
}

fn numbers(text: &str) -> Numbers {
    let (shape, elements) = text.split_once(' ').unwrap();
    let extents = shape.split(',').filter(|it| *it != "-");
    Numbers {
        shape: extents.map(|it| it.parse().unwrap()).collect(),
        elements: elements.split(' ').map(|it| it.parse().unwrap()).collect(),
    }
}

fn argument(kind: &str, text: &str) -> Given {
    let integers = || text.split(' ').map(|it| it.parse::<i64>().unwrap());
    let (compiled, eager) = match kind {
        "tensor" => return Given::Tensor(numbers(text)),
        "buffer" => return Given::Buffer(numbers(text)),
        "labels" => return Given::Labels(numbers(text)),
        "array" => return Given::Array(text.parse().unwrap()),
        "integer" => {
            let number = text.parse().unwrap();
            (Argument::Integer(number), Eager::Integer(number))
        }
        "float" => {
            let number = text.parse().unwrap();
            (Argument::Float(number), Eager::Float(number))
        }
        "boolean" => (Argument::Boolean(text == "true"), Eager::Boolean(text == "true")),
        "text" => (Argument::Text(text.to_owned()), Eager::Text(text.to_owned())),
        "list" => (
            Argument::List(integers().map(Argument::Integer).collect()),
            Eager::List(integers().collect()),
        ),
        "all" => (Argument::All, Eager::All),
        _ => unreachable!("the script writes no `{kind}`"),
    };
    Given::Other(compiled, eager)
}

/// Compares relative to the largest element.
#[track_caller]
fn check(what: &str, found: impl IntoIterator<Item = f64>, expected: &Numbers, tolerance: f64) {
    let found: Vec<f64> = found.into_iter().collect();
    assert_eq!(found.len(), expected.elements.len(), "{what}");
    let scale = expected.elements.iter().fold(1.0, |scale: f64, it| scale.max(it.abs()));
    for (at, (found, expected)) in found.iter().zip(&expected.elements).enumerate() {
        let is_close = (found - expected).abs() <= tolerance * scale;
        assert!(is_close, "{what}, element {at}: {found}, expected {expected}");
    }
}

/// Returns the golden file: the committed one, or the one that the environment names.
fn golden() -> String {
    match std::env::var("SOYBEAN_GOLDEN") {
        Ok(path) => std::fs::read_to_string(path).expect("the environment names a file"),
        Err(_) => include_str!("../reference/golden.txt").to_owned(),
    }
}

#[test]
fn every_operator_has_golden_values() {
    let cases = cases();
    for name in operator_names() {
        let is_exempt = WITHOUT_RESULT.contains(&name) || WITHOUT_GOLDEN.contains(&name);
        assert!(is_exempt || cases.iter().any(|it| it.operator == name), "{name}");
    }
}

#[test]
fn eager_values() {
    for case in cases() {
        let (shape, elements) = eager::scope(|| {
            let result = eager::in_training(SEED, 1, || {
                joined::eager_joined(&eager::call(&case.operator, &eager_arguments(&case)))
            });
            (result.shape(), result.to_vec())
        });
        assert_eq!(shape, case.result.shape, "{}", case.operator);
        // The file has ten digits.
        check(&case.operator, elements, &case.result, 1e-9);
    }
}

fn eager_arguments(case: &Case) -> Vec<Eager> {
    let mut rest = case.arguments.iter();
    let mut arguments = Vec::new();
    while let Some(given) = rest.next() {
        arguments.push(match given {
            Given::Tensor(it) | Given::Buffer(it) | Given::Labels(it) => Eager::Tensor(tensor(it)),
            Given::Array(n) => {
                let tensors = rest.by_ref().take(*n).map(|it| match it {
                    Given::Tensor(it) | Given::Labels(it) => tensor(it),
                    Given::Buffer(_) | Given::Array(_) | Given::Other(..) => {
                        unreachable!("arrays are of tensors")
                    }
                });
                Eager::Tensors(tensors.collect())
            }
            Given::Other(_, eager) => eager.clone(),
        });
    }
    arguments
}

fn tensor(numbers: &Numbers) -> Tensor {
    Tensor::new(&numbers.shape, &numbers.elements)
}

#[test]
fn programs_on_one_and_on_several_devices() {
    for case in cases() {
        for n_gpus in [1, 4, 6] {
            let what = format!("{} on {n_gpus} devices", case.operator);
            let mut trainer = trainer(&case.compile(n_gpus), 1.0);
            let parameters = case.parameters();
            trainer.set_parameters(&parameters).unwrap();
            let (weights, labels) = (single(&case.weights.elements), case.labels());
            let views: Vec<View<'_>> = [View::F32(&weights), View::F32(&SPLITTABLE)]
                .into_iter()
                .chain(labels.iter().map(|it| View::I32(it)))
                .collect();
            let result = trainer.evaluate(&views).unwrap().outputs.remove(0);
            assert_eq!(result.shape, case.result.shape, "{what}");
            // Single precision through some hundred operations.
            if !OTHER_IN_EVALUATION.contains(&&*case.operator) {
                check(&what, result.data.iter().map(|it| f64::from(*it)), &case.result, 2e-5);
            }
            trainer.step(&views).unwrap();
            let after = trainer.parameters().unwrap();
            let trained = parameters.iter().zip(after).filter(|it| !case.is_buffer(&it.0.0));
            for ((before, after), gradient) in trained.zip(&case.gradients) {
                let updates = before.1.data.iter().zip(&after.1.data).map(|(x, y)| x - y);
                check(&format!("{what}, gradient"), updates.map(f64::from), gradient, 2e-5);
            }
        }
    }
}

impl Case {
    fn parameters(&self) -> Vec<(String, Array)> {
        let parameter = |(at, it): (usize, &Given)| match it {
            Given::Tensor(it) | Given::Buffer(it) => {
                let array = Array {
                    shape: it.shape.clone(),
                    data: single(&it.elements),
                    ..Array::default()
                };
                Some((format!("operand{at}"), array))
            }
            Given::Labels(_) | Given::Array(_) | Given::Other(..) => None,
        };
        self.arguments.iter().enumerate().filter_map(parameter).collect()
    }

    fn is_buffer(&self, name: &str) -> bool {
        let at = |position: &usize| format!("operand{position}") == name;
        (0..self.arguments.len())
            .find(at)
            .is_some_and(|it| matches!(self.arguments[it], Given::Buffer(_)))
    }

    /// Returns the elements of each tensor of labels.
    fn labels(&self) -> Vec<Vec<i32>> {
        let labels = self.arguments.iter().filter_map(|it| match it {
            Given::Labels(it) => Some(&it.elements),
            Given::Tensor(_) | Given::Buffer(_) | Given::Array(_) | Given::Other(..) => None,
        });
        #[expect(clippy::cast_possible_truncation, reason = "labels are small integers")]
        labels.map(|elements| elements.iter().map(|it| *it as i32).collect()).collect()
    }

    /// A program whose parameters are the operands.
    fn compile(&self, n_gpus: usize) -> Compiled {
        let mut builder = Builder::new();
        let weights = builder.input("weights", DType::F32, &self.weights.shape);
        let splittable = builder.input("splittable", DType::F32, &[SPLITTABLE.len()]);
        let mut operands = Vec::new();
        let mut arguments = Vec::new();
        // The array of the next tensors, and their number.
        let mut array = (Vec::new(), 0);
        for (at, given) in self.arguments.iter().enumerate() {
            let value = match given {
                Given::Tensor(it) => {
                    let name = format!("operand{at}");
                    let value = builder.parameter(&name, &it.shape, Init::Constant(0.0));
                    operands.push(value);
                    value
                }
                Given::Buffer(it) => {
                    builder.buffer(&format!("operand{at}"), &it.shape, Init::Constant(0.0))
                }
                Given::Labels(it) => builder.input(&format!("labels{at}"), DType::I32, &it.shape),
                Given::Array(n) => {
                    array = (Vec::new(), *n);
                    continue;
                }
                Given::Other(compiled, _) => {
                    arguments.push(compiled.clone());
                    continue;
                }
            };
            array.0.push(Argument::Tensor(value));
            if array.0.len() >= array.1 {
                let members = std::mem::take(&mut array.0);
                let is_array = std::mem::take(&mut array.1) > 0;
                arguments.extend(if is_array { vec![Argument::List(members)] } else { members });
            }
        }
        let result = builder.call(&self.operator, &arguments).unwrap();
        let result = joined::joined(&mut builder, result);
        let product =
            call(&mut builder, "mul", &[Argument::Tensor(result), Argument::Tensor(weights)]);
        let mut loss = call(&mut builder, "sum", &[Argument::Tensor(product), Argument::All]);
        let nothing = call(&mut builder, "sum", &[Argument::Tensor(splittable), Argument::All]);
        loss = call(&mut builder, "add", &[Argument::Tensor(loss), Argument::Tensor(nothing)]);
        // Every parameter contributes to the loss directly with weight 0, so that operators without
        // a gradient compile.
        for operand in operands {
            let nothing =
                call(&mut builder, "mul", &[Argument::Tensor(operand), Argument::Float(0.0)]);
            let sum = call(&mut builder, "sum", &[Argument::Tensor(nothing), Argument::All]);
            loss = call(&mut builder, "add", &[Argument::Tensor(loss), Argument::Tensor(sum)]);
        }
        let outputs = [("result".to_owned(), result)];
        finish(builder, loss, &outputs, n_gpus, Strategy::Auto, Optimizer::default())
    }
}
