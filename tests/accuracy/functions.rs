//! A sweep of every function of each element, and of its derivative, against double precision.
//!
//! Points are of every exponent, dense where functions bend or saturate, halves, and numbers that
//! are not finite. The kernels of CPUs and the CUDA C of GPUs, run on the host, compute them. The
//! limits of errors are a table in `docs/operators.md`; `UPDATE_EXPECT=1` rewrites it.
use std::{collections::BTreeSet, f64::consts, fmt::Write as _, sync::Arc};

use soybean::{
    Config, Device,
    eager::{self, Argument as Eager, Tensor},
    runtime::{Array, Trainer, View},
};
use soybean_compiler::{Argument, Builder, Strategy, operator_descriptions, optimizer};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_plan::{DType, Init};
use soybean_test_support::models::{call, finish};

use crate::pairs::{PAIRS, Pair};

/// The number in whose units in the last place an error is measured, at least 2^-126.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Unit {
    /// The exact result.
    Result,
    /// The result or 1, whichever is larger: what saturates is less its limit.
    One,
    /// The result, the argument or 1, whichever is largest.
    Argument,
}

use Unit::{Argument as OfArgument, One, Result as OfResult};

/// A function with its derivative and the limits of errors.
struct Function {
    name: &'static str,
    arguments: &'static [f64],
    derivative: fn(f64) -> f64,
    units: [Unit; 2],
    /// The most units by which values and derivatives differ from exact ones.
    limits: [f64; 2],
    /// False for numbers at which slopes are not compared.
    domain: fn(f64) -> bool,
}

const fn row(
    name: &'static str,
    units: [Unit; 2],
    limits: [f64; 2],
    derivative: fn(f64) -> f64,
) -> Function {
    Function { name, arguments: &[], derivative, units, limits, domain: |_| true }
}

const fn within(function: Function, domain: fn(f64) -> bool) -> Function {
    Function { domain, ..function }
}

const fn with(arguments: &'static [f64], function: Function) -> Function {
    Function { arguments, ..function }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn step(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

fn bell(x: f64) -> f64 {
    (-x * x / 2.0).exp() / consts::TAU.sqrt()
}

fn of_elu(x: f64, alpha: f64, divisor: f64) -> f64 {
    if x > 0.0 { 1.0 } else { alpha / divisor * (x / divisor).exp() }
}

fn of_gelu_tanh(x: f64) -> f64 {
    let scale = (2.0 / consts::PI).sqrt();
    let tanh = (scale * (x + 0.044_715 * x * x * x)).tanh();
    let slope = scale * (1.0 + 3.0 * 0.044_715 * x * x);
    let product = if tanh.abs() == 1.0 { 0.0 } else { x * (1.0 - tanh * tanh) * slope };
    0.5 * (1.0 + tanh + product)
}

fn of_mish(x: f64) -> f64 {
    let tanh = softplus(x).tanh();
    tanh + x * (1.0 - tanh * tanh) * sigmoid(x)
}

/// Returns whether a number is not next to a kink, which rounding moves by half a unit.
fn no_kink(x: f64) -> bool {
    (x.abs() - 3.0).abs() > 1e-6 || x.abs() == 3.0
}

fn none(_: f64) -> f64 {
    0.0
}

const FUNCTIONS: &[Function] = &[
    row("relu", [OfResult; 2], [0.5; 2], |x| step(x > 0.0)),
    row("relu6", [OfResult; 2], [0.5; 2], |x| step(x > 0.0 && x < 6.0)),
    row("tanh", [OfResult, One], [3.0, 4.0], |x| x.cosh().powi(-2)),
    row("sigmoid", [OfResult, One], [3.0, 2.0], |x| sigmoid(x) * sigmoid(-x)),
    row("exp", [OfResult; 2], [2.0; 2], f64::exp),
    row("log", [OfResult; 2], [2.0, 1.0], |x| 1.0 / x),
    row("sqrt", [OfResult; 2], [0.5, 2.0], |x| 0.5 / x.sqrt()),
    row("rsqrt", [OfResult; 2], [2.0, 4.0], |x| -0.5 * x.powf(-1.5)),
    row("expm1", [OfResult; 2], [2.0; 2], f64::exp),
    row("log1p", [OfResult; 2], [2.0, 2.0], |x| 1.0 / (1.0 + x)),
    row("sin", [OfResult; 2], [1.0; 2], f64::cos),
    row("cos", [OfResult; 2], [1.0; 2], |x| -x.sin()),
    row("erf", [OfResult, One], [2.0, 4.0], |x| consts::FRAC_2_SQRT_PI * (-x * x).exp()),
    row("square", [OfResult; 2], [0.5; 2], |x| 2.0 * x),
    row("abs", [OfResult; 2], [0.5; 2], |x| if x == 0.0 { 0.0 } else { x.signum() }),
    row("sign", [OfResult; 2], [0.5; 2], none),
    row("gelu", [OfArgument, One], [4.0; 2], |x| {
        0.5 * (1.0 + libm_erf(x * consts::FRAC_1_SQRT_2))
            + if x.abs() > 40.0 { 0.0 } else { x * bell(x) }
    }),
    row("gelu_tanh", [OfArgument, One], [4.0, 16.0], of_gelu_tanh),
    row("silu", [OfResult, One], [4.0, 10.0], |x| {
        sigmoid(x) + if x.abs() > 200.0 { 0.0 } else { x * sigmoid(x) * sigmoid(-x) }
    }),
    row("softplus", [OfResult; 2], [4.0; 2], sigmoid),
    row("logsigmoid", [OfResult; 2], [4.0; 2], |x| sigmoid(-x)),
    row("mish", [OfArgument, One], [8.0; 2], of_mish),
    row("softsign", [OfResult, One], [2.0; 2], |x| (1.0 + x.abs()).powi(-2)),
    within(row("hardsigmoid", [One, OfResult], [2.0; 2], |x| step(x.abs() < 3.0) / 6.0), no_kink),
    within(
        row("hardswish", [OfArgument, One], [4.0; 2], |x| match x {
            x if x <= -3.0 => 0.0,
            x if x < 3.0 => (2.0 * x + 3.0) / 6.0,
            _ => 1.0,
        }),
        no_kink,
    ),
    row("selu", [OfResult; 2], [4.0; 2], |x| {
        1.050_700_987_355_480_5 * of_elu(x, 1.673_263_242_354_377_2, 1.0)
    }),
    row("floor", [OfResult; 2], [0.5; 2], none),
    row("ceil", [OfResult; 2], [0.5; 2], none),
    row("round", [OfResult; 2], [0.5; 2], none),
    row("detach", [OfResult; 2], [0.5; 2], none),
    with(&[0.75], row("elu", [OfResult; 2], [4.0; 2], |x| of_elu(x, 0.75, 1.0))),
    with(&[1.5], row("celu", [OfResult; 2], [4.0, 64.0], |x| of_elu(x, 1.5, 1.5))),
    with(&[0.25], row("leaky_relu", [OfResult; 2], [0.5; 2], |x| if x > 0.0 { 1.0 } else { 0.25 })),
    row("reciprocal", [OfResult; 2], [0.5, 2.0], |x| -x.powi(-2)),
    with(&[2.5], row("pow", [OfResult; 2], [1.0, 2.0], |x| 2.5 * x.powf(1.5))),
    with(&[-2.0], row("powi", [OfResult; 2], [2.0, 4.0], |x| -2.0 * x.powi(-3))),
];

/// The error function by its series, or what is left of it in the tail.
fn libm_erf(x: f64) -> f64 {
    soybean_plan::Unary::Erf.evaluate(x)
}

/// Numbers of every exponent, dense between -30 and 30, and near halves.
#[expect(clippy::cast_possible_truncation, reason = "single precision has these powers of 2")]
fn finite() -> Vec<f32> {
    let exponents = (-149..=126).flat_map(|exponent| {
        [1.0, 1.37, 1.99].map(|it: f32| (f64::from(it) * 2.0_f64.powi(exponent)) as f32)
    });
    let dense = (-3000_i16..=3000).map(|it| f32::from(it) / 100.0);
    let halves = (-40_i16..=40).map(|it| f32::from(it) / 2.0);
    let both = exponents.flat_map(|it| [it, -it]).chain(dense);
    let near = halves.flat_map(|it| [it, it.next_up(), it.next_down()]);
    both.chain(near).chain([0.0, -0.0, 88.0, -88.0, -100.0, 100.0]).collect()
}

/// The results for all numbers, and the derivatives where they are finite, by functions.
struct Found {
    values: Vec<Vec<f32>>,
    derivatives: Vec<Vec<f32>>,
}

#[expect(clippy::cast_possible_truncation, reason = "small whole numbers")]
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0).then_some(number as i64)
}

fn arguments_of(function: &Function, first: Argument) -> Vec<Argument> {
    let number = |it: &f64| whole(*it).map_or(Argument::Float(*it), Argument::Integer);
    let numbers = function.arguments.iter().map(number);
    [first].into_iter().chain(numbers).collect()
}

/// Returns the numbers of the domain at which value and slope are finite in single precision.
fn of_domain(function: &Function, x: &[f32]) -> Vec<f32> {
    #[expect(clippy::cast_possible_truncation, reason = "only whether it is finite")]
    let is_finite = |it: f64| (it as f32).is_finite();
    let inside = |(it, value): (&f32, f64)| {
        let wide = f64::from(*it);
        let is_inside = (function.domain)(wide) && is_finite((function.derivative)(wide));
        if is_inside && is_finite(value) { *it } else { 1.0 }
    };
    x.iter().zip(exact(function, x)).map(inside).collect()
}

fn compute(device: Device) -> Found {
    let finite = finite();
    let all =
        [&finite[..], &[f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN]].concat();
    let mut builder = Builder::new();
    let input = builder.input("x", DType::F32, &[all.len()]);
    let bias = builder.parameter("bias", &[1], Init::Constant(0.0));
    let mut loss = call(&mut builder, "sum", &[Argument::Tensor(bias), Argument::All]);
    let mut outputs = Vec::new();
    for function in FUNCTIONS {
        let name = function.name;
        let value = call(&mut builder, name, &arguments_of(function, Argument::Tensor(input)));
        outputs.push((name.to_owned(), value));
        let parameter = builder.parameter(name, &[finite.len()], Init::Constant(1.0));
        let value = call(&mut builder, name, &arguments_of(function, Argument::Tensor(parameter)));
        // The difference is 0, so that the loss is finite, but has the gradient of the value.
        let constant = call(&mut builder, "detach", &[Argument::Tensor(value)]);
        let value = call(&mut builder, "sub", &[value, constant].map(Argument::Tensor));
        // A second path, so that functions without derivative can be trained.
        let nothing =
            call(&mut builder, "mul", &[Argument::Tensor(parameter), Argument::Float(0.0)]);
        for term in [value, nothing] {
            let sum = call(&mut builder, "sum", &[Argument::Tensor(term), Argument::All]);
            loss = call(&mut builder, "add", &[Argument::Tensor(loss), Argument::Tensor(sum)]);
        }
    }
    let optimizer = optimizer("gradients", &[]).unwrap();
    let compiled = finish(builder, loss, &outputs, 1, Strategy::Auto, optimizer);
    let config = Config { device, ..Config::default() };
    let mut trainer = Trainer::new_shared(Arc::new(compiled.program), config).unwrap();
    let array = |function: &Function| Array {
        shape: vec![finite.len()],
        data: of_domain(function, &finite),
        ..Array::default()
    };
    let bias = Array { shape: vec![1], data: vec![0.0], ..Array::default() };
    let of_functions = FUNCTIONS.iter().map(|it| (it.name.to_owned(), array(it)));
    let parameters: Vec<(String, Array)> =
        [("bias".to_owned(), bias)].into_iter().chain(of_functions).collect();
    trainer.set_parameters(&parameters).unwrap();
    let batch = [View::F32(&all)];
    let values = trainer.evaluate(&batch).unwrap().outputs.into_iter().map(|it| it.data).collect();
    trainer.step(&batch).unwrap();
    let derivatives = FUNCTIONS.iter().map(|it| trainer.gradient(it.name).unwrap().data).collect();
    Found { values, derivatives }
}

/// Returns the eager results in double precision.
fn exact(function: &Function, x: &[f32]) -> Vec<f64> {
    eager::scope(|| {
        let x: Vec<f64> = x.iter().map(|it| f64::from(*it)).collect();
        let first = Eager::Tensor(Tensor::new([x.len()], &x));
        let number = |it: &f64| whole(*it).map_or(Eager::Float(*it), Eager::Integer);
        let others = function.arguments.iter().map(number);
        let arguments: Vec<Eager> = [first].into_iter().chain(others).collect();
        eager::call(function.name, &arguments).remove(0).to_vec()
    })
}

/// Returns the error in units in the last place, and infinity where one of the two is no number.
pub(crate) fn error(found: f32, exact: f64, x: f32, unit: Unit) -> f64 {
    #[expect(clippy::cast_possible_truncation, reason = "the best result there is")]
    let rounded = exact as f32;
    if rounded.is_nan() && found.is_nan() || rounded.is_infinite() && found == rounded {
        return 0.0;
    }
    let size = match unit {
        OfResult => exact.abs(),
        One => exact.abs().max(1.0),
        OfArgument => exact.abs().max(1.0).max(f64::from(x.abs())),
    };
    let size = size.clamp(f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX.next_down()));
    #[expect(clippy::cast_possible_truncation, reason = "of a size of single precision")]
    let size = size as f32;
    let last = f64::from(size.next_up()) - f64::from(size);
    // Results below 2^-126 may be 0.
    let difference = (f64::from(found) - exact).abs();
    match (exact.abs() < f64::from(f32::MIN_POSITIVE), found.is_finite()) {
        (true, true) if found.abs() <= f32::MIN_POSITIVE => 0.0,
        (_, true) => difference / last,
        (_, false) => f64::INFINITY,
    }
}

pub(crate) fn largest(errors: impl Iterator<Item = (f64, f32)>) -> (f64, f32) {
    errors.fold((0.0, 0.0), |most, it| if it.0 > most.0 { it } else { most })
}

fn check(device: Device) {
    let finite = finite();
    let all =
        [&finite[..], &[f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN]].concat();
    let Found { values, derivatives } = compute(device);
    let mut faults = String::new();
    for ((function, values), derivatives) in FUNCTIONS.iter().zip(values).zip(derivatives) {
        let [unit, of_derivative] = function.units;
        let exact = exact(function, &all);
        let of_values = values.iter().zip(&exact).zip(&all);
        let of_values = largest(of_values.map(|((y, exact), x)| (error(*y, *exact, *x, unit), *x)));
        let x = of_domain(function, &finite);
        let slopes = derivatives
            .iter()
            .zip(&x)
            .map(|(y, x)| (error(*y, (function.derivative)(f64::from(*x)), *x, of_derivative), *x));
        for (what, (error, at), limit) in [
            ("value", of_values, function.limits[0]),
            ("slope", largest(slopes), function.limits[1]),
        ] {
            if error > limit {
                let _ = writeln!(faults, "{} {what}: {error:.2} at {at:e}", function.name);
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
    on_virtual_gpus("functions::text_of_gpus", &[], |_| check(Device::Cuda));
}

// Guards: a new function of each element is part of the sweep.
#[test]
fn every_function_is_tried() {
    let all = operator_descriptions().into_iter().filter(|it| it.module == "activation");
    let all: BTreeSet<&str> = all.map(|it| it.name).collect();
    let tried: BTreeSet<&str> = FUNCTIONS.iter().map(|it| it.name).collect();
    assert!(all.is_subset(&tried), "{:?}", all.difference(&tried));
}

const HEAD_OF_PAIRS: &str = "
Functions of two numbers, also at pairs whose quotient is almost an integer. Errors are in ULP of the
result.

| function | ULP | derivatives, ULP |
| --- | ---: | ---: |
";

const HEAD: &str = "
## Accuracy

Generated from the limits of a test: `UPDATE_EXPECT=1 cargo test --test accuracy` rewrites this table.
It compares results and derivatives in `f32` with double precision at numbers of every exponent, on CPUs and in the CUDA C of GPUs, which the host runs with its own
functions of C. Errors are in units in the last place (ULP) of the result, of the result or 1 (*1*), or of the result, the argument or 1 (*x*), whichever is largest.
Results below 2^-126 may be 0.

| function | ULP | of | derivative, ULP | of |
| --- | ---: | --- | ---: | --- |
";

#[test]
fn the_table_is_up_to_date() {
    let text = |unit: Unit| match unit {
        OfResult => "result",
        One => "1",
        OfArgument => "x",
    };
    let mut table = HEAD.to_owned();
    for Function { name, arguments, units, limits, .. } in FUNCTIONS {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let call = format!("{name}({})", arguments.join(", "));
        let [unit, of_derivative] = units.map(text);
        let [limit, derivative] = limits;
        let _ = writeln!(table, "| `{call}` | {limit} | {unit} | {derivative} | {of_derivative} |");
    }
    table.push_str(HEAD_OF_PAIRS);
    for Pair { name, limits: [limit, derivatives], .. } in PAIRS {
        let _ = writeln!(table, "| `{name}` | {limit} | {derivatives} |");
    }
    let path = format!("{}/docs/operators.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(&path).unwrap();
    let operators = page.split("\n## Accuracy\n").next().unwrap();
    let expected = format!("{operators}{table}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &expected).unwrap();
    } else {
        assert!(page == expected, "docs/operators.md is stale; UPDATE_EXPECT=1 rewrites it");
    }
}
