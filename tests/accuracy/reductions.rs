//! Reductions of equal numbers, of numbers around a large mean, and of very large and small ones,
//! on whole and on split rows.

use std::sync::Arc;

use soybean::{
    Config, Device,
    runtime::{Array, Trainer},
};
use soybean_compiler::{Argument, Builder, Strategy, Value, optimizer};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_plan::Init;
use soybean_test_support::models::{call, finish};

const CPU: [(Device, usize, Strategy); 3] = [
    (Device::Cpu, 1, Strategy::Auto),
    (Device::Cpu, 2, Strategy::Model),
    (Device::Cpu, 4, Strategy::Data),
];
const GPUS: [(Device, usize, Strategy); 2] =
    [(Device::Cuda, 1, Strategy::Auto), (Device::Cuda, 2, Strategy::Model)];

type Place = (Device, usize, Strategy);

/// Returns the result of a function of a tensor, and the gradient of the sum of the result.
fn run(
    (device, n_gpus, strategy): Place,
    (shape, x): (&[usize], &[f32]),
    function: &dyn Fn(&mut Builder, Value) -> Value,
) -> [Vec<f32>; 2] {
    let mut builder = Builder::new();
    let parameter = builder.parameter("x", shape, Init::Constant(0.0));
    let result = function(&mut builder, parameter);
    let loss = call(&mut builder, "sum", &[Argument::Tensor(result), Argument::All]);
    let outputs = [("result".to_owned(), result)];
    let gradients = optimizer("gradients", &[]).unwrap();
    let compiled = finish(builder, loss, &outputs, n_gpus, strategy, gradients);
    let config = Config { device, ..Config::default() };
    let mut trainer = Trainer::new_shared(Arc::new(compiled.program), config).unwrap();
    let array = Array { shape: shape.to_vec(), data: x.to_vec(), ..Array::default() };
    trainer.set_parameters(&[("x".to_owned(), array)]).unwrap();
    let result = trainer.evaluate(&[]).unwrap().outputs.remove(0).data;
    trainer.step(&[]).unwrap();
    [result, trainer.gradient("x").unwrap().data]
}

fn operator<'a>(
    name: &'a str,
    others: &'a [Argument],
) -> impl Fn(&mut Builder, Value) -> Value + 'a {
    move |builder, x| call(builder, name, &[&[Argument::Tensor(x)], others].concat())
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (x, y) in found.iter().zip(expected) {
        let is_close = (f64::from(*x) - y).abs() <= tolerance * y.abs();
        assert!(is_close, "{what}: {found:?}, expected {expected:?}");
    }
}

const SETTINGS: [Argument; 2] = [Argument::Integer(1), Argument::Integer(1)];

fn equal_numbers(places: &[Place]) {
    for &place in places {
        for number in [0.3, 1000.1, -7.7e-5, 1.0 / 3.0] {
            for n in [6, 12, 100] {
                let x = vec![number; 4 * n];
                let rows = (&[4, n][..], &x[..]);
                let what = format!("{n} of {number} on {place:?}");
                for name in ["std", "var"] {
                    let [result, gradient] = run(place, rows, &operator(name, &SETTINGS));
                    assert_eq!(
                        (result, gradient),
                        (vec![0.0; 4], vec![0.0; 4 * n]),
                        "{name}, {what}"
                    );
                }
            }
        }
    }
}

// Guards: what rounds in the mean of equal numbers is no spread.
#[test]
fn equal_numbers_have_no_spread() {
    equal_numbers(&CPU);
}

#[test]
fn equal_numbers_have_no_spread_on_gpus() {
    let test = "reductions::equal_numbers_have_no_spread_on_gpus";
    on_virtual_gpus(test, &[], |_| equal_numbers(&GPUS));
}

const LARGE: [f32; 12] = [
    9999.987, 9999.995, 10000.022, 9999.998, 9999.996, 10000.017, 9999.991, 10000.006, 10000.0,
    10000.007, 9999.996, 9999.992,
];

fn large_means(places: &[Place]) {
    let x: Vec<f64> = LARGE.iter().map(|it| f64::from(*it)).collect();
    let mean = x.iter().sum::<f64>() / 12.0;
    let deviations: Vec<f64> = x.iter().map(|it| it - mean).collect();
    let squares: f64 = deviations.iter().map(|it| it * it).sum();
    for &place in places {
        let twice = [LARGE, LARGE].concat();
        let rows = (&[2, 12][..], &twice[..]);
        let [result, gradient] = run(place, rows, &operator("var", &SETTINGS));
        assert_close(&result, &[squares / 11.0; 2], 1e-5, &format!("var on {place:?}"));
        let slopes: Vec<f64> = deviations.iter().map(|it| 2.0 * it / 11.0).collect();
        assert_close(&gradient, &[&slopes[..], &slopes].concat(), 1e-4, "the gradient of var");
    }
}

// Guards: a large mean costs no digits of the variance.
#[test]
fn numbers_around_a_large_mean() {
    large_means(&CPU);
}

#[test]
fn numbers_around_a_large_mean_on_gpus() {
    let test = "reductions::numbers_around_a_large_mean_on_gpus";
    on_virtual_gpus(test, &[], |_| large_means(&GPUS));
}

fn extremes(places: &[Place]) {
    let along = [Argument::Integer(1)];
    for &place in places {
        for size in [1e20, 1e-25, 3e30, 1e-38, 1.0, 0.0] {
            let x = [3.0 * size, -4.0 * size, 0.0, 0.0].repeat(2);
            let (x, rows) = (&x[..], [2, 4]);
            let what = format!("{size} on {place:?}");
            let [result, gradient] = run(place, (&rows, x), &operator("norm", &along));
            assert_close(&result, &[5.0 * f64::from(size); 2], 1e-6, &what);
            let signs = if size == 0.0 { [0.0; 4] } else { [0.6, -0.8, 0.0, 0.0] };
            assert_close(&gradient, &signs.repeat(2), 1e-6, &what);
            let to_length_1 = [Argument::Integer(1), Argument::Float(1e-18)];
            if size != 1e-25 && size != 1e-38 {
                let [result, _] = run(place, (&rows, x), &operator("normalize", &to_length_1));
                assert_close(&result, &signs.repeat(2), 1e-6, &what);
            }
        }
        for x in [1.5e38, -1.5e38, 0.1] {
            for n in [4, 6, 10] {
                let rows = vec![x; 2 * n];
                let [result, gradient] = run(place, (&[2, n], &rows), &operator("mean", &along));
                assert_close(&result, &[f64::from(x); 2], 2e-7, &format!("mean on {place:?}"));
                assert_close(&gradient, &vec![1.0 / n as f64; 2 * n], 2e-7, "its gradient");
            }
        }
        let rows = [[3e38, 3e38, -3e38, 0.0], [-3e38; 4]].concat();
        let [result, gradient] = run(place, (&[2, 4], &rows), &operator("logsumexp", &along));
        let size = f64::from(3e38_f32);
        assert_close(&result, &[size, -size], 1e-6, "logsumexp");
        let shares = [[0.5, 0.5, 0.0, 0.0], [0.25; 4]].concat();
        assert_close(&gradient, &shares, 1e-6, "the gradient of logsumexp");
    }
}

// Guards: nothing overflows or underflows where the result does not.
#[test]
fn very_large_and_very_small_numbers() {
    extremes(&CPU);
}

#[test]
fn very_large_and_very_small_numbers_on_gpus() {
    let test = "reductions::very_large_and_very_small_numbers_on_gpus";
    on_virtual_gpus(test, &[], |_| extremes(&GPUS));
}

// Lengths of 3-4-5 triangles, with their products and differences.
fn similarities(places: &[Place]) {
    // The other operand is moved by one and has no gradient.
    let moved = |builder: &mut Builder, x: Value| {
        let steps = [Argument::Tensor(x), Argument::Integer(1), Argument::Integer(1)];
        let moved = call(builder, "roll", &steps);
        call(builder, "detach", &[Argument::Tensor(moved)])
    };
    let filled = |builder: &mut Builder, shape: &[i64], number: f64| {
        let shape = shape.iter().map(|it| Argument::Integer(*it)).collect();
        call(builder, "full", &[Argument::List(shape), Argument::Float(number)])
    };
    let similarity = |builder: &mut Builder, x: Value| {
        let others = [Argument::Integer(1), Argument::Float(1e-18)];
        let operands = [x, moved(builder, x)].map(Argument::Tensor);
        call(builder, "cosine_similarity", &[operands, others].concat())
    };
    let embedding = |builder: &mut Builder, x: Value| {
        let operands = [x, moved(builder, x), filled(builder, &[2], 1.0)].map(Argument::Tensor);
        let margin = [Argument::Float(0.0)];
        call(builder, "cosine_embedding_loss", &[&operands[..], &margin].concat())
    };
    let triplet = |builder: &mut Builder, x: Value| {
        let operands = [x, moved(builder, x), filled(builder, &[2, 4], 0.0)].map(Argument::Tensor);
        let margin = [Argument::Float(1.0)];
        call(builder, "triplet_margin_loss", &[&operands[..], &margin].concat())
    };
    for &place in places {
        for size in [1e20_f32, 3e30, 1e3, 1e-16] {
            let (x, wide) = ([3.0 * size, -4.0 * size, 0.0, 0.0].repeat(2), f64::from(size));
            let rows = (&[2, 4][..], &x[..]);
            let what = format!("{size} on {place:?}");
            // The gradient of the cosine c by x is (y / |y| - c x / |x|) / |x|.
            let slopes = [0.288, 0.216, -0.8, 0.0].map(|it| it / (5.0 * wide)).repeat(2);
            let [result, gradient] = run(place, rows, &similarity);
            assert_close(&result, &[-0.48; 2], 1e-6, &what);
            assert_close(&gradient, &slopes, 1e-5, &what);
            if size < 1.0 {
                continue;
            }
            let [result, gradient] = run(place, rows, &embedding);
            assert_close(&result, &[1.48], 1e-6, &what);
            let halves: Vec<f64> = slopes.iter().map(|it| -it / 2.0).collect();
            assert_close(&gradient, &halves, 1e-5, &what);
            let [result, gradient] = run(place, rows, &triplet);
            let length = 74.0_f64.sqrt();
            assert_close(&result, &[(length - 5.0) * wide + 1.0], 1e-6, &what);
            let slopes = [3.0 / length - 0.6, 0.8 - 7.0 / length, 4.0 / length, 0.0];
            // Differences of numbers up to 1.
            let is_close = |(x, y): (&f32, f64)| (f64::from(*x) - y / 2.0).abs() < 1e-6;
            assert!(gradient.iter().zip(slopes.repeat(2)).all(is_close), "{what}: {gradient:?}");
        }
    }
}

// Guards: squares of lengths overflow or underflow where cosines and distances do not.
#[test]
fn similarities_of_very_large_and_very_small_numbers() {
    similarities(&CPU);
}

#[test]
fn similarities_on_gpus() {
    on_virtual_gpus("reductions::similarities_on_gpus", &[], |_| similarities(&GPUS));
}

// Guards: saturated losses have PyTorch's gradients, which are finite.
#[test]
fn saturated_losses() {
    let loss = |name: &'static str, targets: [f64; 2], others: &'static [Argument]| {
        move |builder: &mut Builder, x: Value| {
            let targets = targets.map(|it| {
                let shape = Argument::List(vec![Argument::Integer(1)]);
                Argument::Tensor(call(builder, "full", &[shape, Argument::Float(it)]))
            });
            let list = Argument::List(targets.to_vec());
            let target = builder.call("concat", &[list, Argument::Integer(0)]);
            let arguments = [&[Argument::Tensor(x), target.unwrap()], others].concat();
            call(builder, name, &arguments)
        }
    };
    let place = CPU[0];
    // The mean of two: PyTorch gives 1e12 and -1e12 for each.
    let wrong = loss("binary_cross_entropy", [0.0, 1.0], &[]);
    let [result, gradient] = run(place, (&[2], &[1.0, 0.0]), &wrong);
    assert_close(&result, &[100.0], 1e-6, "losses of 100");
    assert_close(&gradient, &[0.5e12, -0.5e12], 1e-6, "wrong probabilities");
    let right = loss("binary_cross_entropy", [1.0, 0.0], &[]);
    let [result, gradient] = run(place, (&[2], &[1.0, 0.0]), &right);
    assert_eq!((result, gradient), (vec![0.0], vec![0.0; 2]));
    static HALF: [Argument; 2] = [Argument::Float(0.25), Argument::Float(0.5)];
    let focal = loss("sigmoid_focal_loss", [1.0, 0.0], &HALF);
    for size in [20.0, 90.0, 200.0, 1e4] {
        let [_, gradient] = run(place, (&[2], &[size, -size]), &focal);
        assert!(gradient.iter().all(|it| it.abs() < 1e-6), "{size}: {gradient:?}");
    }
}
