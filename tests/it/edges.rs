//! Numerically delicate operators: at kinks, and for numbers that are large, far from 0, or NaN.

use soybean::{
    eager::{Tensor, scope},
    runtime::{Array, View},
};
use soybean_compiler::{Argument, Builder, Optimizer, Strategy};
use soybean_plan::{DType, Init};
use soybean_test_support::models::{call, finish, trainer};

/// Returns the result of an operator for a vector and more arguments, and the gradient of its sum
/// with respect to the vector.
fn run(operator: &str, x: &[f32], others: &[Argument]) -> (Vec<f32>, Vec<f32>) {
    let mut builder = Builder::new();
    let parameter = builder.parameter("x", &[x.len()], Init::Constant(0.0));
    let arguments: Vec<Argument> =
        [Argument::Tensor(parameter)].into_iter().chain(others.iter().cloned()).collect();
    let result = call(&mut builder, operator, &arguments);
    let loss = call(&mut builder, "sum", &[Argument::Tensor(result), Argument::All]);
    let outputs = [("result".to_owned(), result)];
    let compiled = finish(builder, loss, &outputs, 1, Strategy::Auto, Optimizer::default());
    let mut trainer = trainer(&compiled, 1.0);
    let array = Array { shape: vec![x.len()], data: x.to_vec(), ..Array::default() };
    trainer.set_parameters(&[("x".to_owned(), array)]).unwrap();
    let result = trainer.evaluate(&[]).unwrap().outputs.remove(0).data;
    trainer.step(&[]).unwrap();
    let after = trainer.parameters().unwrap().remove(0).1.data;
    (result, x.iter().zip(after).map(|(before, after)| before - after).collect())
}

/// Returns the result of an operator for a tensor and more arguments, on this many devices.
fn value(
    operator: &str,
    shape: &[usize],
    x: &[f32],
    others: &[Argument],
    n_gpus: usize,
) -> Vec<f32> {
    let mut builder = Builder::new();
    let parameter = builder.parameter("x", shape, Init::Constant(0.0));
    let arguments = [&[Argument::Tensor(parameter)], others].concat();
    let result = call(&mut builder, operator, &arguments);
    let loss = call(&mut builder, "sum", &[Argument::Tensor(parameter), Argument::All]);
    let outputs = [("result".to_owned(), result)];
    let compiled = finish(builder, loss, &outputs, n_gpus, Strategy::Auto, Optimizer::default());
    let mut trainer = trainer(&compiled, 1.0);
    let array = Array { shape: shape.to_vec(), data: x.to_vec(), ..Array::default() };
    trainer.set_parameters(&[("x".to_owned(), array)]).unwrap();
    trainer.evaluate(&[]).unwrap().outputs.remove(0).data
}

/// Compares numbers; those that are not finite must be the same.
#[track_caller]
fn same(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{found:?}, expected {expected:?}");
    for (x, y) in found.iter().zip(expected) {
        let is_same = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 2e-6 * y.abs();
        assert!(is_same, "{found:?}, expected {expected:?}");
    }
}

#[track_caller]
fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{found:?}, expected {expected:?}");
    for (x, y) in found.iter().zip(expected) {
        assert!((x - y).abs() <= 2e-6 * y.abs().max(1.0), "{found:?}, expected {expected:?}");
    }
}

#[test]
fn gradients_at_kinks() {
    close(&run("abs", &[-1.5, 0.0, 2.0], &[]).1, &[-1.0, 0.0, 1.0]);
    close(&run("maximum", &[0.0, 0.5, 1.0], &[Argument::Float(0.5)]).1, &[0.0, 0.5, 1.0]);
    close(&run("minimum", &[0.0, 0.5, 1.0], &[Argument::Float(0.5)]).1, &[1.0, 0.5, 0.0]);
    let bounds = [Argument::Integer(-1), Argument::Integer(1)];
    let (result, gradient) = run("clamp", &[-2.0, -1.0, 0.0, 1.0, 2.0], &bounds);
    close(&result, &[-1.0, -1.0, 0.0, 1.0, 1.0]);
    close(&gradient, &[0.0, 1.0, 1.0, 1.0, 0.0]);
    // Ties share the gradient.
    close(&run("min", &[2.0, -1.0, -1.0], &[Argument::All]).1, &[0.0, 0.5, 0.5]);
}

#[test]
fn gradients_at_the_bounds_of_relu6() {
    let (result, gradient) = run("relu6", &[-1.0, 0.0, 3.0, 6.0, 7.0], &[]);
    close(&result, &[0.0, 0.0, 3.0, 6.0, 6.0]);
    close(&gradient, &[0.0, 0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn spreads_of_equal_numbers() {
    let settings = [Argument::All, Argument::Integer(1)];
    let (result, gradient) = run("std", &[0.25; 4], &settings);
    close(&result, &[0.0]);
    close(&gradient, &[0.0; 4]);
    // d std = (x - mean) / (3 std)
    let (result, gradient) = run("std", &[1.0, 2.0, 3.0, 4.0], &settings);
    let std = (5.0_f32 / 3.0).sqrt();
    close(&result, &[std]);
    close(&gradient, &[-1.5, -0.5, 0.5, 1.5].map(|it: f32| it / (3.0 * std)));
}

#[test]
fn means_of_equal_numbers() {
    for n in [3, 12, 49, 1000] {
        let x = vec![88.0; n];
        assert_eq!(value("mean", &[n], &x, &[Argument::All], 1), [88.0], "{n}");
        assert_eq!(value("global_avg_pool2d", &[1, 1, 1, n], &x, &[], 1), [88.0], "{n}");
    }
}

/// Returns rows of `n` numbers normalized by `layer_norm`.
fn layer_norm(n: usize, x: &[f32]) -> Vec<f32> {
    let shape = [x.len() / n, n];
    let mut builder = Builder::new();
    let input = builder.input("x", DType::F32, &shape);
    let [weight, bias] = [("weight", 1.0), ("bias", 0.0)]
        .map(|(name, it)| Argument::Tensor(builder.parameter(name, &[n], Init::Constant(it))));
    let arguments = [Argument::Tensor(input), weight, bias, Argument::Float(1e-5)];
    let result = call(&mut builder, "layer_norm", &arguments);
    let loss = call(&mut builder, "sum", &[Argument::Tensor(result), Argument::All]);
    let outputs = [("result".to_owned(), result)];
    let compiled = finish(builder, loss, &outputs, 1, Strategy::Auto, Optimizer::default());
    trainer(&compiled, 1.0).predict(&[View::F32(x)]).unwrap().remove(0).data
}

#[test]
fn normalized_numbers_far_from_zero() {
    // Around 10,000, neighboring numbers differ by 2^-10. The mean is rounded to one of them, and
    // that is all that the result loses.
    let spacing = 2.0_f64.powi(-10);
    for n in [12_u16, 64, 768, 4096] {
        let x: Vec<f32> = (0..8 * u32::from(n))
            .map(|it| {
                10_000.0
                    + 0.06 * (f32::from(u16::try_from(it * 7919 % 1009).unwrap()) / 1009.0 - 0.5)
            })
            .collect();
        let n_columns = usize::from(n);
        let found = layer_norm(n_columns, &x);
        for (x, y) in x.chunks(n_columns).zip(found.chunks(n_columns)) {
            let x: Vec<f64> = x.iter().map(|it| f64::from(*it)).collect();
            let mean = x.iter().sum::<f64>() / f64::from(n);
            let variance = x.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / f64::from(n);
            let deviation = (variance + 1e-5).sqrt();
            for (x, y) in x.iter().zip(y) {
                let error = (f64::from(*y) * deviation - (x - mean)).abs();
                assert!(error < 0.6 * spacing, "{n}: {error}");
            }
        }
    }
}

/// The numbers that are not finite.
const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

/// Checks an operator along the rows of a matrix, in a trainer and eagerly. The expected numbers
/// are PyTorch's.
#[track_caller]
fn check_rows<const N: usize>(
    operator: &str,
    eager: fn(Tensor) -> Tensor,
    rows: &[[f32; N]],
    expected: &[f32],
) {
    let (shape, x) = ([rows.len(), N], rows.concat());
    for n_gpus in [1, 2] {
        same(&value(operator, &shape, &x, &[Argument::Integer(1)], n_gpus), expected);
    }
    scope(|| {
        let x: Vec<f64> = x.iter().map(|it| f64::from(*it)).collect();
        #[expect(clippy::cast_possible_truncation, reason = "single precision is compared")]
        let found: Vec<f32> =
            eager(Tensor::new(shape, &x)).to_vec().iter().map(|it| *it as f32).collect();
        same(&found, expected);
    });
}

#[test]
fn sums_of_exponentials_of_infinities() {
    let rows = [[1.0, INF], [INF, INF], [-INF, -INF], [1.0, -INF], [-INF, INF], [1.0, NAN]];
    check_rows("logsumexp", |x| x.logsumexp(1), &rows, &[INF, INF, -INF, 1.0, INF, NAN]);
}

#[test]
fn largest_of_what_is_no_number() {
    let rows = [
        [1.0, NAN, 3.0, NAN],
        [INF, 1.0, INF, 0.0],
        [-INF, -INF, -INF, -INF],
        [NAN, INF, 2.0, 3.0],
        [1.0, 3.0, 3.0, 2.0],
        [-INF, -1.0, -INF, NAN],
    ];
    check_rows("argmax", |x| x.argmax(1), &rows, &[1.0, 0.0, 0.0, 0.0, 1.0, 3.0]);
}

#[test]
fn cumulative_sums_of_what_is_no_number() {
    let rows = [
        [1.0, 2.0, NAN, 4.0, 5.0],
        [1.0, INF, 2.0, -INF, 3.0],
        [3.0, 1.0, 4.0, 1.0, 5.0],
        [0.0, -INF, NAN, INF, 1.0],
    ];
    let expected = [
        [1.0, 3.0, NAN, NAN, NAN],
        [1.0, INF, INF, NAN, NAN],
        [3.0, 4.0, 8.0, 9.0, 14.0],
        [0.0, -INF, NAN, NAN, NAN],
    ];
    check_rows("cumsum", |x| x.cumsum(1), &rows, &expected.concat());
    // The gradient of x[i] is the number of sums that it is part of.
    let gradient = run("cumsum", &[0.0; 5], &[Argument::Integer(0)]).1;
    close(&gradient, &[5.0, 4.0, 3.0, 2.0, 1.0]);
}

#[test]
fn windows_with_what_is_no_number() {
    let image = [1.0, NAN, 2.0, 3.0, 5.0, 4.0, -INF, INF];
    let windows = [2, 2, 0].map(Argument::Integer);
    same(&value("max_pool2d", &[1, 1, 2, 4], &image, &windows, 1), &[NAN, INF]);
    scope(|| {
        let image = Tensor::new([1, 1, 2, 4], &image.map(f64::from));
        let found = image.max_pool2d(2, 2, 0).to_vec();
        assert!(found[0].is_nan() && found[1] == f64::INFINITY, "{found:?}");
    });
}

#[test]
fn computed_indices_out_of_range() {
    // Numbers of a parameter become indices: 0, 3 and -1 of a table of two rows.
    let mut builder = Builder::new();
    let numbers = builder.parameter("x", &[4], Init::Constant(0.0));
    let table = builder.parameter("table", &[2, 1], Init::Constant(5.0));
    let indices = call(&mut builder, "to_i32", &[Argument::Tensor(numbers)]);
    let rows = call(&mut builder, "embedding", &[indices, table].map(Argument::Tensor));
    let classes = Argument::Integer(2);
    let hot = call(&mut builder, "one_hot", &[Argument::Tensor(indices), classes]);
    let ones = call(&mut builder, "sum", &[Argument::Tensor(hot), Argument::Integer(1)]);
    let losses = call(&mut builder, "cross_entropy", &[hot, indices].map(Argument::Tensor));
    let both = [numbers, table]
        .map(|it| call(&mut builder, "sum", &[Argument::Tensor(it), Argument::All]));
    let loss = call(&mut builder, "add", &both.map(Argument::Tensor));
    let outputs = [("rows", rows), ("ones", ones), ("losses", losses)];
    let outputs = outputs.map(|(name, value)| (name.to_owned(), value));
    let compiled = finish(builder, loss, &outputs, 2, Strategy::Auto, Optimizer::default());
    let mut trainer = trainer(&compiled, 1.0);
    let mut found = |x: [f32; 4]| {
        let array = |shape: &[usize], data: &[f32]| Array {
            shape: shape.to_vec(),
            data: data.to_vec(),
            ..Array::default()
        };
        let table = ("table".to_owned(), array(&[2, 1], &[5.0, 6.0]));
        trainer.set_parameters(&[("x".to_owned(), array(&[4], &x)), table]).unwrap();
        trainer.evaluate(&[]).unwrap().outputs.into_iter().map(|it| it.data).collect::<Vec<_>>()
    };
    let check = |x: [f32; 4], found: Vec<Vec<f32>>, expected: [&[f32]; 3]| {
        for (found, expected) in found.iter().zip(expected) {
            same(found, expected);
        }
        scope(|| {
            let indices = Tensor::new([4], &x.map(f64::from));
            let table = Tensor::new([2, 1], &[5.0, 6.0]);
            let hot = indices.one_hot(2);
            let eager = [indices.embedding(table), hot.sum(1), hot.cross_entropy(indices)];
            for (found, expected) in eager.iter().zip(expected) {
                #[expect(clippy::cast_possible_truncation, reason = "single precision")]
                let found: Vec<f32> = found.to_vec().iter().map(|it| *it as f32).collect();
                same(&found, expected);
            }
        });
    };
    let x = [0.0, 3.0, -1.0, 1.0];
    check(x, found(x), [&[5.0, 0.0, 0.0, 6.0], &[1.0, 0.0, 0.0, 1.0], &[NAN]]);
    let x = [0.0, 1.0, 1.0, 1.0];
    let loss = (1.0 + (-1.0_f32).exp()).ln();
    check(x, found(x), [&[5.0, 6.0, 6.0, 6.0], &[1.0; 4], &[loss]]);
}

#[test]
fn learning_rates_that_are_not_finite() {
    for rate in [NAN, INF, -INF] {
        let mut builder = Builder::new();
        let x = builder.parameter("x", &[2], Init::Constant(1.0));
        let loss = call(&mut builder, "sum", &[Argument::Tensor(x), Argument::All]);
        let compiled = finish(builder, loss, &[], 1, Strategy::Auto, Optimizer::default());
        let mut trainer = trainer(&compiled, 1.0);
        trainer.set_learning_rate(rate);
        let error = trainer.step(&[]).unwrap_err();
        let expected = format!("`learning_rate` must be a number from 0 to 3.4e38, found {rate}");
        assert_eq!(error.to_string(), expected);
        assert_eq!(trainer.parameters().unwrap()[0].1.data, [1.0; 2]);
        trainer.set_learning_rate(0.5);
        trainer.step(&[]).unwrap();
        assert_eq!(trainer.parameters().unwrap()[0].1.data, [0.5; 2]);
    }
}

#[test]
fn sums_of_exponentials() {
    let (result, gradient) = run("logsumexp", &[1000.0, 1000.0, -1000.0], &[Argument::Integer(0)]);
    close(&result, &[1000.0 + 2.0_f32.ln()]);
    close(&gradient, &[0.5, 0.5, 0.0]);
}

#[test]
fn variances_far_from_zero() {
    // Deviations of 1 from a mean of 4096: the mean of squares minus the squared mean would lose
    // them.
    let x = [4095.0, 4097.0, 4095.0, 4097.0];
    close(&run("var", &x, &[Argument::All, Argument::Integer(0)]).0, &[1.0]);
    scope(|| {
        let x = Tensor::new([4], &[1e8 - 1.0, 1e8 + 1.0, 1e8 - 1.0, 1e8 + 1.0]);
        let one = Tensor::new([4], &[1.0; 4]);
        let normal = x.layer_norm(one, one - 1, 0.0);
        assert_eq!(normal.to_vec(), [-1.0, 1.0, -1.0, 1.0]);
    });
}

#[test]
fn logits_of_any_size() {
    // The gradient of a logit is (sigmoid(x) - t) / n, also at 0, where training starts.
    let mut builder = Builder::new();
    let x = builder.parameter("x", &[4], Init::Constant(0.0));
    let t = builder.parameter("t", &[4], Init::Constant(0.0));
    let arguments = [Argument::Tensor(x), Argument::Tensor(t)];
    let loss = call(&mut builder, "binary_cross_entropy_with_logits", &arguments);
    let compiled = finish(builder, loss, &[], 1, Strategy::Auto, Optimizer::default());
    let mut trainer = trainer(&compiled, 4.0);
    let array = |data: [f32; 4]| Array { shape: vec![4], data: data.to_vec(), ..Array::default() };
    let x = [0.0, 200.0, -200.0, 200.0];
    let arrays = [("x".to_owned(), array(x)), ("t".to_owned(), array([0.0, 1.0, 0.0, 0.0]))];
    trainer.set_parameters(&arrays).unwrap();
    close(&[trainer.step(&[]).unwrap()], &[(2.0_f32.ln() + 200.0) / 4.0]);
    let after = trainer.parameters().unwrap().remove(0).1.data;
    let gradient: Vec<f32> = x.iter().zip(after).map(|(before, after)| before - after).collect();
    close(&gradient, &[0.5, 0.0, 0.0, 1.0]);
}

#[test]
fn comparisons_with_what_is_no_number() {
    for (operator, expected) in
        [("eq", 0.0), ("ne", 1.0), ("lt", 0.0), ("le", 0.0), ("gt", 0.0), ("ge", 0.0)]
    {
        let mut builder = Builder::new();
        let x = builder.parameter("x", &[1], Init::Constant(0.0));
        let root = call(&mut builder, "sqrt", &[Argument::Tensor(x)]);
        let result = call(&mut builder, operator, &[Argument::Tensor(root), Argument::Integer(1)]);
        let loss = call(&mut builder, "sum", &[Argument::Tensor(x), Argument::All]);
        let outputs = [("result".to_owned(), result)];
        let compiled = finish(builder, loss, &outputs, 1, Strategy::Auto, Optimizer::default());
        let mut trainer = trainer(&compiled, 1.0);
        let array = Array { shape: vec![1], data: vec![-1.0], ..Array::default() };
        trainer.set_parameters(&[("x".to_owned(), array)]).unwrap();
        let found = trainer.evaluate(&[]).unwrap().outputs.remove(0).data;
        assert_eq!(found, [expected], "{operator}");
    }
}

/// Returns the largest size of what a norm makes of equal numbers in a training step.
fn norm_of_equal_numbers(operator: &str, shape: [usize; 3], x: f64, n_gpus: usize) -> f32 {
    let mut builder = Builder::new();
    let input = builder.parameter("x", &shape, Init::Constant(x));
    let n = if operator == "layer_norm" { shape[2] } else { shape[1] };
    let mut vector = |name, it| {
        let init = Init::Constant(it);
        let is_buffer = name == "mean" || name == "var";
        let add = if is_buffer { Builder::buffer } else { Builder::parameter };
        Argument::Tensor(add(&mut builder, name, &[n], init))
    };
    let (weight, bias) = (vector("weight", 1.0), vector("bias", 0.0));
    let arguments = match operator {
        "group_norm" => vec![Argument::Integer(1), weight, bias],
        "batch_norm" => {
            let buffers = [vector("mean", 0.0), vector("var", 1.0)];
            buffers.into_iter().chain([weight, bias, Argument::Float(0.1)]).collect()
        }
        _ => vec![weight, bias],
    };
    let arguments = [&[Argument::Tensor(input)], &arguments[..], &[Argument::Float(1e-5)]].concat();
    let result = call(&mut builder, operator, &arguments);
    let size = call(&mut builder, "abs", &[Argument::Tensor(result)]);
    let loss = call(&mut builder, "max", &[Argument::Tensor(size), Argument::All]);
    let compiled = finish(builder, loss, &[], n_gpus, Strategy::Auto, Optimizer::default());
    trainer(&compiled, 1.0).step(&[]).unwrap()
}

#[test]
fn norms_of_equal_numbers() {
    for operator in ["layer_norm", "group_norm", "batch_norm"] {
        for shape in [[6, 6, 1], [7, 3, 11], [4, 48, 49], [4, 8, 5555], [9, 3, 9999]] {
            for x in [1000.1, 0.3, 12345.67, 1e-3] {
                for n_gpus in [1, 3] {
                    let found = norm_of_equal_numbers(operator, shape, x, n_gpus);
                    assert_eq!(found, 0.0, "{operator} {shape:?} {x} {n_gpus}");
                }
            }
        }
    }
}
