//! Operators that users define: the same training on any number of devices, by gradients that are
//! those of finite differences, with exactly the predicted bytes.

use std::sync::Arc;

use layer_crate::operators::{distances, distances_from_centers};
use soybean::{
    Config, Device, Network, Tensor, eager,
    operator::{Float, Operator, TensorMut, TensorRef},
    runtime::{Array, Trainer, View},
};
use soybean_compiler::{Compiled, Recipe, Strategy};
use soybean_plan::{CustomFunction, Executable, Kernel};
use soybean_test_support::models::{numbers, single};

use crate::support::arrays::tensor;

const DEVICES: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Each row over the sum of its squares, whose dim is never split.
#[soybean::operator("bK->bK", gradient = normalize_gradient)]
fn normalize<F: Float>(x: TensorRef<'_, F>, result: TensorMut<'_, F>) {
    let width = x.shape[1];
    for (row, out) in x.data.chunks(width).zip(result.data.chunks_mut(width)) {
        let sum = row.iter().fold(F::one(), |sum, it| sum + *it * *it);
        for (out, it) in out.iter_mut().zip(row) {
            *out = *it / sum;
        }
    }
}

// y = x / s with s = 1 + sum x^2, so dx = dy / s - 2 y (y . dy).
#[soybean::layer]
fn normalize_gradient(x: Tensor, result: Tensor, gradient: Tensor) -> Tensor {
    let sum = (x * x).sum(1).unsqueeze(1) + 1.0;
    gradient / sum - result * (result * gradient).sum(1).unsqueeze(1) * 2.0
}

/// A product with a factor for each term, `sum_i x_i^2 w_io s_i`.
#[soybean::operator("bi,io,i->bo", gradient = weighted_gradient)]
fn weighted<F: Float>(
    x: TensorRef<'_, F>,
    w: TensorRef<'_, F>,
    s: TensorRef<'_, F>,
    result: TensorMut<'_, F>,
) {
    let (depth, n_columns) = (w.shape[0], w.shape[1]);
    for (row, out) in x.data.chunks(depth).zip(result.data.chunks_mut(n_columns)) {
        out.fill(F::zero());
        for ((x, s), w) in row.iter().zip(s.data).zip(w.data.chunks(n_columns)) {
            for (out, w) in out.iter_mut().zip(w) {
                *out = *out + *x * *x * *w * *s;
            }
        }
    }
}

#[soybean::layer]
fn weighted_gradient(
    x: Tensor,
    w: Tensor,
    s: Tensor,
    _result: Tensor,
    gradient: Tensor,
) -> (Tensor, Tensor, Tensor) {
    let back = gradient.matmul(w.transpose());
    let squares = x * x;
    let of_w = (squares * s).transpose().matmul(gradient);
    (back * x * s * 2.0, of_w, (back * squares).sum(0))
}

/// One where a number is above a half, for which there is no gradient.
#[soybean::operator("bk->bk", gradient = none)]
fn is_high<F: Float>(x: TensorRef<'_, F>, result: TensorMut<'_, F>) {
    let half = F::one() / (F::one() + F::one());
    for (out, it) in result.data.iter_mut().zip(x.data) {
        *out = if *it > half { F::one() } else { F::zero() };
    }
}

#[soybean::model(gpus = 8, optimizer = sgd())]
mod nearest {
    use layer_crate::operators::distances_from_centers;
    use soybean::prelude::*;

    use super::{is_high, normalize, weighted};

    pub(crate) fn forward(x: Tensor<f32, 24, 6>, label: Tensor<i32, 24>) -> (Tensor, Tensor) {
        let w = param("w", [6, 10], normal(0.5));
        let scale = param("scale", [6], ones());
        let h = normalize(weighted(x, w, scale)) + 0.1 * is_high(x).mean(1).unsqueeze(1);
        let logits = -distances_from_centers(h, 4);
        (logits.cross_entropy(label), logits)
    }
}

#[soybean::model(gpus = 8, optimizer = sgd(), precision = "bf16")]
mod nearest_in_bf16 {
    use layer_crate::operators::distances_from_centers;
    use soybean::prelude::*;

    pub(crate) fn forward(x: Tensor<f32, 24, 6>, label: Tensor<i32, 24>) -> (Tensor, Tensor) {
        let w = param("w", [6, 10], normal(0.5));
        let logits = -distances_from_centers(x.matmul(w), 4);
        (logits.cross_entropy(label), logits)
    }
}

#[soybean::model(gpus = 4, mode = "inference")]
mod nearest_center {
    use layer_crate::operators::distances_from_centers;
    use soybean::prelude::*;

    pub(crate) fn forward(x: Tensor<f32, 8, 6>) -> Tensor {
        distances_from_centers(x, 4)
    }
}

/// Returns a program for a number of devices. The functions that a program gets from the linker are
/// those of the macro's program.
fn compiled<N: Network>(n_gpus: usize, strategy: Strategy) -> Compiled {
    let functions: Vec<(String, CustomFunction<f32>)> =
        N::model().kernels().iter().filter_map(function).collect();
    let mut recipe: Recipe = N::PLAN.recipe.parse().unwrap();
    assert_eq!(recipe.to_string(), N::PLAN.recipe);
    recipe.options.n_gpus = n_gpus;
    recipe.options.search.strategy = strategy;
    let compiled = recipe.compile(&|| 0.0).unwrap();
    let mut program = compiled.program.into_program();
    for kernel in program.kernels.to_mut() {
        if let Kernel::Custom(custom) = kernel {
            let found = functions.iter().find(|it| it.0 == custom.function.symbol);
            custom.function.function = Some(found.unwrap().1);
        }
    }
    // SAFETY: the functions are those that the linker gives the generated program.
    #[expect(unsafe_code, reason = "tests vouch for their programs")]
    let program = unsafe { Executable::new(program) };
    Compiled { program, ..compiled }
}

fn function(kernel: &Kernel) -> Option<(String, CustomFunction<f32>)> {
    let Kernel::Custom(custom) = kernel else { return None };
    let function = custom.function.function.expect("the linker has found the function");
    Some((custom.function.symbol.clone().into_owned(), function))
}

fn trainer(compiled: &Compiled, learning_rate: f32) -> Trainer {
    // Not all of these operators have a text for GPUs.
    let config = Config { learning_rate, device: Device::Cpu, ..Config::default() };
    Trainer::new_shared(Arc::new(compiled.program.clone()), config).unwrap()
}

fn batch() -> (Vec<f32>, Vec<i32>) {
    (single(&numbers(24 * 6, 3)), (0..24).map(|it| it * it % 4).collect())
}

#[test]
fn training_is_the_same_on_any_number_of_devices() {
    let (x, label) = batch();
    let batch = [View::F32(&x), View::I32(&label)];
    let train = |compiled: &Compiled, what: &str| -> Vec<f32> {
        let mut trainer = trainer(compiled, 0.5);
        let step = |_| {
            let loss = trainer.step(&batch).unwrap();
            assert_eq!(trainer.moved_bytes(), compiled.program.tables.train_bytes(), "{what}");
            loss
        };
        (0..20).map(step).collect()
    };
    let expected = train(&compiled::<nearest::Network>(1, Strategy::Auto), "one device");
    assert!(expected[19] < 0.9 * expected[0], "{expected:?}");
    for n_gpus in DEVICES {
        for strategy in ["auto", "recursive", "data", "model"] {
            let what = format!("{n_gpus} devices, {strategy}");
            let compiled = compiled::<nearest::Network>(n_gpus, strategy.parse().unwrap());
            for (found, expected) in train(&compiled, &what).iter().zip(&expected) {
                // Sums have another order, and their last digits change the next updates.
                assert!((found - expected).abs() <= 1e-4 * expected, "{what}: {found}, {expected}");
            }
        }
    }
}

#[test]
fn plans_split_operators_along_their_letters() {
    let compiled = compiled::<nearest::Network>(8, Strategy::Auto);
    let customs: Vec<String> = compiled
        .program
        .kernels
        .iter()
        .filter_map(|it| match it {
            Kernel::Custom(it) => Some(it.to_string()),
            _ => None,
        })
        .collect();
    // 8 devices split the samples into 4 parts, and 10 columns of `w` and of the centers into 2.
    // The latter leaves partial distances. The samples alone are split where rows are normalized.
    let expected = [
        "custom weighted bi,io,i->bo [6, 6] [6, 5] [6] -> [6, 5]",
        "custom normalize bK->bK [3, 10] -> [3, 10]",
        "custom is_high bk->bk [3, 6] -> [3, 6]",
        "custom distances bk,jk->bj [6, 5] [4, 5] -> [6, 4]",
    ];
    for expected in expected {
        assert!(customs.iter().any(|it| it == expected), "{expected}: {customs:#?}");
    }
}

/// Returns the loss by eager tensors.
fn eager_loss(parameters: &[(String, Array)], change: (usize, usize, f64)) -> f64 {
    let (x, label) = batch();
    let wide = |it: &[f32]| it.iter().map(|it| f64::from(*it)).collect::<Vec<_>>();
    let labels: Vec<f64> = label.iter().map(|it| f64::from(*it)).collect();
    eager::scope(|| {
        let values: Vec<Tensor> = parameters
            .iter()
            .enumerate()
            .map(|(number, (_, array))| {
                let mut elements = wide(&array.data);
                if number == change.0 {
                    elements[change.1] += change.2;
                }
                Tensor::new(&array.shape, &elements)
            })
            .collect();
        let inputs = [Tensor::new([24, 6], &wide(&x)), Tensor::new([24], &labels)];
        eager::with_parameters(&values, || nearest::forward(inputs[0], inputs[1]).0.item())
    })
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let (x, label) = batch();
    for n_gpus in [1, 6, 8] {
        let mut trainer = trainer(&compiled::<nearest::Network>(n_gpus, Strategy::Auto), 1.0);
        let before = trainer.parameters().unwrap();
        let loss = trainer.step(&[View::F32(&x), View::I32(&label)]).unwrap();
        assert!((f64::from(loss) - eager_loss(&before, (0, 0, 0.0))).abs() < 1e-5);
        let after = trainer.parameters().unwrap();
        for (number, (before_it, after)) in before.iter().zip(&after).enumerate() {
            for element in 0..before_it.1.data.len() {
                let found = f64::from(before_it.1.data[element] - after.1.data[element]);
                let at = |distance| eager_loss(&before, (number, element, distance));
                let expected = (at(1e-5) - at(-1e-5)) / 2e-5;
                let name = &before_it.0;
                assert!((found - expected).abs() < 1e-5, "{name} {element}: {found}, {expected}");
            }
        }
    }
}

#[test]
fn bf16_changes_losses_by_rounding_alone() {
    let (x, label) = batch();
    let batch = [View::F32(&x), View::I32(&label)];
    let first = |n_gpus| {
        let mut trainer =
            trainer(&compiled::<nearest_in_bf16::Network>(n_gpus, Strategy::Auto), 0.1);
        trainer.step(&batch).unwrap()
    };
    let expected = first(1);
    for n_gpus in DEVICES {
        // `bf16` has 8 bits.
        assert!((first(n_gpus) - expected).abs() < 0.01 * expected, "{n_gpus} devices");
    }
}

#[test]
fn predictors_call_operators() {
    let mut predictor = nearest_center::Predictor::new(Config::default()).unwrap();
    let x = single(&numbers(3 * 6, 1));
    let outputs = predictor.predict(&nearest_center::Batch { x: &x }).unwrap();
    let parameters = predictor.parameters().unwrap();
    let wide: Vec<f64> = x.iter().map(|it| f64::from(*it)).collect();
    eager::scope(|| {
        let expected = distances(Tensor::new([3, 6], &wide), tensor(&parameters[0].1)).to_vec();
        for (found, expected) in outputs[0].data.iter().zip(&expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-5);
        }
    });
}

#[test]
fn operators_are_checked() {
    distances::OPERATOR.check(&[&[4, 6], &[3, 6]]).unwrap();
    distances::OPERATOR.check(&[&[1, 1], &[1, 1]]).unwrap();
    normalize::OPERATOR.check(&[&[5, 7]]).unwrap();
    weighted::OPERATOR.check(&[&[2, 5], &[5, 3], &[5]]).unwrap();
    is_high::OPERATOR.check(&[&[2, 5]]).unwrap();
}

#[test]
fn checks_find_mistakes() {
    let check = |operator: Operator, shapes: &[&[usize]], expected: &str| {
        let error = operator.check(shapes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let distances = distances::OPERATOR;
    check(distances, &[&[4, 6]], "operator `distances`: expected 2 operands, found 1");
    check(
        distances,
        &[&[4, 6], &[3, 5]],
        "operator `distances`: operand `y` of bk,jk->bj: `k` is 6 above, but 5 here",
    );
    // Rows are normalized as a whole.
    let split = Operator { notation: "bk->bk", ..normalize::OPERATOR };
    check(split, &[&[4, 6]], "operator `normalize`: in two parts along `k`, element 0: expected");
    let of_first = |tensors: &[Tensor]| vec![tensors[2] * 2.0];
    let wrong = Operator { gradient: Some(of_first), ..normalize::OPERATOR };
    check(wrong, &[&[4, 6]], "operator `normalize`: in the gradient of `x`, element 0: expected");
    let of_none = |_: &[Tensor]| Vec::new();
    let wrong = Operator { gradient: Some(of_none), ..normalize::OPERATOR };
    check(wrong, &[&[4, 6]], "expected the gradients of 1 operands, found 0");
    let turned = |tensors: &[Tensor]| vec![tensors[0].transpose()];
    let wrong = Operator { gradient: Some(turned), ..normalize::OPERATOR };
    check(wrong, &[&[4, 6]], "the gradient of `x` is [4, 6], found [6, 4]");
    fn writes_nothing<F>(_: &[TensorRef<'_, F>], _: TensorMut<'_, F>) {}
    let idle = Operator {
        function: writes_nothing,
        function_in_f64: writes_nothing,
        ..normalize::OPERATOR
    };
    check(idle, &[&[4, 6]], "in single precision, element 0: expected NaN, found NaN");
    let other = Operator { function: writes_nothing, ..normalize::OPERATOR };
    check(other, &[&[4, 6]], "operator `normalize`: in single precision, element 0: expected");
}

#[soybean::operator("bk->bk", gradient = none)]
fn panics<F: Float>(x: TensorRef<'_, F>, result: TensorMut<'_, F>) {
    result.data[x.data.len()] = F::zero();
}

#[soybean::model(gpus = 2, mode = "inference")]
mod panicking {
    use soybean::prelude::*;

    use super::panics;

    pub(crate) fn forward(x: Tensor<f32, 4, 2>) -> Tensor {
        panics(x)
    }
}

#[test]
fn a_panic_of_an_operator_is_an_error() {
    let config = Config { device: Device::Cpu, ..Config::default() };
    let mut predictor = panicking::Predictor::new(config).unwrap();
    let error = predictor.predict(&panicking::Batch { x: &[0.0; 8] }).unwrap_err().to_string();
    assert!(error.contains("index out of bounds"), "{error}");
}

#[test]
#[should_panic(
    expected = "operator `distances`: operand `y` of bk,jk->bj: `k` is 2 above, but 3 here"
)]
fn eager_operands_must_fit() {
    let _ = distances(Tensor::new([1, 2], &[0.0; 2]), Tensor::new([1, 3], &[0.0; 3]));
}

#[test]
fn layers_with_operators_are_ordinary_functions() {
    let x = Tensor::new([1, 2], &[1.0, -2.0]);
    let centers = Tensor::new([2, 2], &[0.0, 0.0, 1.0, 1.0]);
    let found = eager::with_parameters(&[centers], || distances_from_centers(x, 2).to_vec());
    assert_eq!(found, [3.0, 3.0]);
}
