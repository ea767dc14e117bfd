//! A sweep of every function of two numbers, and of its derivatives, against double precision and
//! long division: CPU kernels, the CUDA C of GPUs, run on the host, and eager tensors.
//!
//! Pairs are of all sizes, next to integer quotients, and of numbers that are not finite.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use soybean::{
    Config, Device,
    eager::{self, Argument as Eager, Tensor},
    runtime::{Array, Trainer, View},
};
use soybean_compiler::{Argument, Builder, Strategy, optimizer};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_plan::{Binary, DType, Init};
use soybean_test_support::models::{call, finish};

use crate::functions::{Unit, error, largest};

/// A function of two numbers with its derivatives and the most units in the last place of the
/// result by which they may differ from exact ones.
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    value: fn(f64, f64) -> f64,
    derivatives: [fn(f64, f64) -> f64; 2],
    pub(crate) limits: [f64; 2],
    /// True for pairs at which derivatives are compared, whose sum is finite.
    domain: fn(f64, f64) -> bool,
}

const fn row(
    name: &'static str,
    value: fn(f64, f64) -> f64,
    derivatives: [fn(f64, f64) -> f64; 2],
    limits: [f64; 2],
) -> Pair {
    Pair { name, value, derivatives, limits, domain: |x, y| is_usual(x) && is_usual(y) }
}

const fn within(pair: Pair, domain: fn(f64, f64) -> bool) -> Pair {
    Pair { domain, ..pair }
}

fn is_usual(x: f64) -> bool {
    (1e-12..1e12).contains(&x.abs())
}

fn share(x: f64, y: f64) -> f64 {
    if x == y { 0.5 } else { f64::from(u8::from(x > y)) }
}

fn larger(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() { f64::NAN } else { x.max(y) }
}

pub(crate) const PAIRS: &[Pair] = &[
    row("add", |x, y| x + y, [|_, _| 1.0; 2], [0.5; 2]),
    row("sub", |x, y| x - y, [|_, _| 1.0, |_, _| -1.0], [0.5; 2]),
    row("mul", |x, y| x * y, [|_, y| y, |x, _| x], [0.5; 2]),
    row("div", |x, y| x / y, [|_, y| 1.0 / y, |x, y| -x / (y * y)], [0.5, 2.0]),
    row("floor_divide", |x, y| divided(x, y).0, [|_, _| 0.0; 2], [2.0, 0.0]),
    row("remainder", |x, y| divided(x, y).1, [|_, _| 1.0, |x, y| -divided(x, y).0], [0.5, 2.0]),
    within(
        row("pow", f64::powf, [|x, y| y * x.powf(y - 1.0), |x, y| x.powf(y) * x.ln()], [1.0, 8.0]),
        |x, y| (1e-3..1e3).contains(&x) && y.abs() < 10.0,
    ),
    row("maximum", larger, [share, |x, y| share(y, x)], [0.5; 2]),
    row("minimum", |x, y| -larger(-x, -y), [|x, y| share(y, x), share], [0.5; 2]),
];

/// Returns the floor of a quotient, and the remainder, by long division of significands.
fn divided(x: f64, y: f64) -> (f64, f64) {
    if y == 0.0 {
        return (x / y, f64::NAN);
    }
    if !x.is_finite() || y.is_nan() {
        return (f64::NAN, f64::NAN);
    }
    let is_opposite = x.is_sign_negative() != y.is_sign_negative();
    if x == 0.0 || y.is_infinite() {
        return match is_opposite && x != 0.0 {
            true => (-1.0, y),
            false => (x / y, x),
        };
    }
    #[expect(clippy::cast_possible_truncation, reason = "numbers of single precision")]
    let parts = |number: f64| {
        let bits = (number as f32).abs().to_bits();
        let exponent = i32::try_from(bits >> 23).unwrap();
        let implied = if exponent == 0 { 0 } else { 1 << 23 };
        (u64::from(bits & 0x7f_ffff | implied), exponent.max(1) - 150)
    };
    let ((significand, of_x), (divisor, of_y)) = (parts(x), parts(y));
    // From a shift by 24 bits on, the divisor is greater, whatever its significand.
    let divisor = divisor << (of_y - of_x).clamp(0, 32);
    let (mut quotient, mut rest) = ((significand / divisor) as f64, significand % divisor);
    for _ in 0..of_x - of_y {
        quotient = 2.0 * quotient + (2 * rest / divisor) as f64;
        rest = 2 * rest % divisor;
    }
    let rest = (rest as f64 * 2.0_f64.powi(of_x.min(of_y))).copysign(x);
    match is_opposite {
        true if rest != 0.0 => (-quotient - 1.0, rest + y),
        true => (-quotient, rest),
        false => (quotient, rest),
    }
}

/// Pairs of all sizes, pairs whose quotient is almost an integer, and pairs of special numbers.
/// Only the first, of this number, are finite.
#[expect(clippy::cast_possible_truncation, reason = "numbers of single precision")]
fn pairs() -> (Vec<[f32; 2]>, usize) {
    let of_exponent =
        |exponent: i32| [1.0, 1.37, 1.99].map(|it| it * 2.0_f64.powi(exponent) as f32);
    let sizes = (-149..=127).step_by(12).flat_map(of_exponent);
    let both = |it: f32| [it, -it];
    let numbers: Vec<f32> =
        sizes.chain([0.0, 1e-45, 0.75, 10.0, f32::MAX]).flat_map(both).collect();
    let crossed = |of: &[f32]| -> Vec<[f32; 2]> {
        of.iter().flat_map(|x| of.iter().map(|y| [*x, *y])).collect()
    };
    let counts = (0..30).flat_map(|it| [1_u64 << it, (1 << it) + 1, (1 << it) - 1, (3 << it) / 2]);
    let divisors = [0.1_f32, 1.0 / 3.0, 0.7, 1.0, 3.0, 7.3, 1e-3, 1.7e20, 1e-41];
    let near = |count: u64| {
        divisors.into_iter().flat_map(move |y| {
            let x = (count as f64 * f64::from(y)) as f32;
            [x, x.next_up(), x.next_down(), (f64::from(x) + f64::from(y) / 2.0) as f32]
                .into_iter()
                .flat_map(move |x| [[x, y], [-x, y], [x, -y], [-x, -y]])
        })
    };
    let finite: Vec<[f32; 2]> =
        crossed(&numbers).into_iter().chain(counts.flat_map(near)).collect();
    let special = [0.0, -0.0, 1e-45, -1e-45, 1.0, -2.5, f32::MAX];
    let special = [&special[..], &[f32::INFINITY, f32::NEG_INFINITY, f32::NAN]].concat();
    let n_finite = finite.len();
    (finite.into_iter().chain(crossed(&special)).collect(), n_finite)
}

/// Returns the pairs at which derivatives are compared.
fn of_domain(pair: &Pair, finite: &[[f32; 2]]) -> Vec<[f32; 2]> {
    let inside = |it: &[f32; 2]| match (pair.domain)(it[0].into(), it[1].into()) {
        true => *it,
        false => [1.0, 1.0],
    };
    finite.iter().map(inside).collect()
}

fn column(pairs: &[[f32; 2]], at: usize) -> Vec<f32> {
    pairs.iter().map(|it| it[at]).collect()
}

/// The results at all pairs, and the derivatives by both where they are compared.
struct Found {
    values: Vec<Vec<f32>>,
    derivatives: Vec<[Vec<f32>; 2]>,
}

fn compute(device: Device) -> Found {
    let (pairs, n_finite) = pairs();
    let mut builder = Builder::new();
    let inputs = ["x", "y"].map(|it| builder.input(it, DType::F32, &[pairs.len()]));
    let bias = builder.parameter("bias", &[1], Init::Constant(0.0));
    let mut loss = call(&mut builder, "sum", &[Argument::Tensor(bias), Argument::All]);
    let mut outputs = Vec::new();
    let mut parameters =
        vec![("bias".to_owned(), Array { shape: vec![1], data: vec![0.0], ..Array::default() })];
    for pair in PAIRS {
        let value = call(&mut builder, pair.name, &inputs.map(Argument::Tensor));
        outputs.push((pair.name.to_owned(), value));
        let finite = of_domain(pair, &pairs[..n_finite]);
        let both = [0, 1].map(|at| {
            let name = format!("{}_{at}", pair.name);
            let data = column(&finite, at);
            parameters
                .push((name.clone(), Array { shape: vec![n_finite], data, ..Array::default() }));
            builder.parameter(&name, &[n_finite], Init::Constant(1.0))
        });
        let value = call(&mut builder, pair.name, &both.map(Argument::Tensor));
        // Second paths, so that functions without derivative can be trained.
        let nothing =
            both.map(|it| call(&mut builder, "mul", &[Argument::Tensor(it), Argument::Float(0.0)]));
        for term in [value, nothing[0], nothing[1]] {
            let sum = call(&mut builder, "sum", &[Argument::Tensor(term), Argument::All]);
            loss = call(&mut builder, "add", &[Argument::Tensor(loss), Argument::Tensor(sum)]);
        }
    }
    let optimizer = optimizer("gradients", &[]).unwrap();
    let compiled = finish(builder, loss, &outputs, 1, Strategy::Auto, optimizer);
    let config = Config { device, ..Config::default() };
    let mut trainer = Trainer::new_shared(Arc::new(compiled.program), config).unwrap();
    trainer.set_parameters(&parameters).unwrap();
    let columns = [0, 1].map(|at| column(&pairs, at));
    let batch = columns.each_ref().map(|it| View::F32(it));
    let values = trainer.evaluate(&batch).unwrap().outputs.into_iter().map(|it| it.data).collect();
    trainer.step(&batch).unwrap();
    let mut gradient = |name: &str, at| trainer.gradient(&format!("{name}_{at}")).unwrap().data;
    let derivatives = PAIRS.iter().map(|it| [0, 1].map(|at| gradient(it.name, at))).collect();
    Found { values, derivatives }
}

/// Returns the most units by which numbers differ from those of a function, and `x` where they do.
fn most(found: &[f32], pairs: &[[f32; 2]], function: fn(f64, f64) -> f64) -> (f64, f32) {
    let exact = |[x, y]: [f32; 2]| function(x.into(), y.into());
    let of = |(found, pair): (&f32, &[f32; 2])| {
        (error(*found, exact(*pair), 0.0, Unit::Result), pair[0])
    };
    largest(found.iter().zip(pairs).map(of))
}

fn check(device: Device) {
    let (pairs, n_finite) = pairs();
    let Found { values, derivatives } = compute(device);
    let mut faults = String::new();
    for ((pair, values), [by_x, by_y]) in PAIRS.iter().zip(values).zip(derivatives) {
        let finite = of_domain(pair, &pairs[..n_finite]);
        let [limit, of_slopes] = pair.limits;
        for (what, (error, at), limit) in [
            ("value", most(&values, &pairs, pair.value), limit),
            ("slope by x", most(&by_x, &finite, pair.derivatives[0]), of_slopes),
            ("slope by y", most(&by_y, &finite, pair.derivatives[1]), of_slopes),
        ] {
            if error > limit {
                let _ = writeln!(faults, "{} {what}: {error:.2} at x = {at:e}", pair.name);
            }
        }
    }
    assert!(faults.is_empty(), "{device:?}\n{faults}");
}

#[test]
fn kernels_of_the_cpu() {
    check(Device::Cpu);
}

#[test]
fn text_of_gpus() {
    on_virtual_gpus("pairs::text_of_gpus", &[], |_| check(Device::Cuda));
}

#[test]
fn eager_tensors() {
    let (pairs, _) = pairs();
    for pair in PAIRS {
        let found = eager::scope(|| {
            let operand = |at: usize| {
                let column: Vec<f64> = pairs.iter().map(|it| f64::from(it[at])).collect();
                Eager::Tensor(Tensor::new([column.len()], &column))
            };
            eager::call(pair.name, &[operand(0), operand(1)]).remove(0).to_vec()
        });
        #[expect(clippy::cast_possible_truncation, reason = "compared as single precision")]
        let found: Vec<f32> = found.into_iter().map(|it| it as f32).collect();
        let (error, at) = most(&found, &pairs, pair.value);
        assert!(error <= 0.5, "{}: {error} at x = {at:e}", pair.name);
    }
}

// Guards: a new function of two numbers is part of the sweep.
#[test]
fn every_function_is_tried() {
    let others = [Binary::Equal, Binary::Greater, Binary::GreaterOrEqual, Binary::Noise];
    let is_tried = |it: &&Binary| !it.takes_integers() && !others.contains(it);
    let all: BTreeSet<&str> = Binary::ALL.iter().filter(is_tried).map(|it| it.name()).collect();
    let tried: BTreeSet<&str> = PAIRS.iter().map(|it| it.name).collect();
    assert!(all.is_subset(&tried), "{:?}", all.difference(&tried));
}
