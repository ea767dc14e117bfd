//! Arithmetic of integers: eager tensors and programs on one and on two devices give the same bits,
//! also where results wrap around, and where numbers become integers.

use std::sync::Arc;

use soybean::{
    Config, Device,
    eager::{self, Argument as Eager, Tensor},
    runtime::{Array, Trainer, View},
};
use soybean_compiler::{Argument, Builder, Optimizer, Strategy};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_plan::{DType, Init};
use soybean_test_support::models::{call, finish};

#[derive(Clone, Copy)]
enum Term {
    /// An input: two of integers and one of numbers.
    Input(usize),
    /// The result of an earlier call.
    Result(usize),
    Integer(i64),
    AllDims,
}

use Term::{AllDims, Input, Integer, Result};

const X: Term = Input(0);
const Y: Term = Input(1);

const CALLS: [(&str, &[Term]); 30] = [
    ("mul", &[X, Y]),
    ("gt", &[X, Y]),
    ("add", &[X, Y]),
    ("sub", &[X, Y]),
    ("floor_divide", &[X, Y]),
    ("remainder", &[X, Y]),
    ("maximum", &[X, Y]),
    ("minimum", &[X, Y]),
    ("eq", &[X, Y]),
    ("le", &[X, Y]),
    ("where_", &[X, Result(1), Y]),
    ("neg", &[X]),
    ("add", &[X, Integer(i32::MAX as i64)]),
    ("sub", &[Integer(i32::MIN as i64), X]),
    ("mul", &[X, Integer(65_537)]),
    ("floor_divide", &[X, Integer(-1)]),
    ("remainder", &[X, Integer(-3)]),
    ("floor_divide", &[Integer(i32::MIN as i64), X]),
    ("clamp", &[X, Integer(-(1 << 24) - 1), Integer((1 << 24) + 1)]),
    ("sum", &[X, AllDims]),
    ("sum", &[X, Integer(0)]),
    ("sum", &[Result(0), Integer(1)]),
    ("max", &[Y, Integer(0)]),
    ("max", &[X, AllDims]),
    ("min", &[X, AllDims]),
    ("min", &[Y, Integer(1)]),
    ("cumsum", &[X, Integer(0)]),
    ("cumsum", &[X, Integer(1)]),
    ("to_f32", &[X]),
    ("to_i32", &[Input(2)]),
];

const INTEGERS: [i32; 12] = [
    i32::MIN,
    i32::MIN + 1,
    -(1 << 24) - 1,
    -7,
    -1,
    0,
    1,
    3,
    (1 << 24) + 1,
    1 << 30,
    i32::MAX - 1,
    i32::MAX,
];

/// Numbers that become integers: halves, those next to the bounds, and what has no integer.
const NUMBERS: [f32; 12] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    3e9,
    2_147_483_648.0,
    2_147_483_520.0,
    -2_147_483_648.0,
    -2_147_483_904.0,
    -0.5,
    -1.9,
    16_777_217.0,
    1e-40,
];

/// Returns all pairs of integers, `[12, 12]`, and as many numbers.
fn inputs() -> ([Vec<i32>; 2], Vec<f32>) {
    let pairs = || INTEGERS.iter().flat_map(|x| INTEGERS.map(|y| [*x, y]));
    let columns = [0, 1].map(|at| pairs().map(|it| it[at]).collect());
    (columns, NUMBERS.repeat(12))
}

fn eager_results() -> Vec<Vec<f64>> {
    let ([x, y], numbers) = inputs();
    let numbers: Vec<f64> = numbers.into_iter().map(f64::from).collect();
    eager::scope(|| {
        let inputs = [
            Tensor::integers([12, 12], &x),
            Tensor::integers([12, 12], &y),
            Tensor::new([12, 12], &numbers),
        ];
        let mut results: Vec<Tensor> = Vec::new();
        for (operator, terms) in CALLS {
            let argument = |it: &Term| match *it {
                Input(at) => Eager::Tensor(inputs[at]),
                Result(at) => Eager::Tensor(results[at]),
                Integer(number) => Eager::Integer(number),
                AllDims => Eager::All,
            };
            let arguments: Vec<Eager> = terms.iter().map(argument).collect();
            results.push(eager::call(operator, &arguments).remove(0));
        }
        results.into_iter().map(Tensor::to_vec).collect()
    })
}

fn compiled_results(device: Device, n_devices: usize, strategy: Strategy) -> Vec<Array> {
    let mut builder = Builder::new();
    let types = [("x", DType::I32), ("y", DType::I32), ("numbers", DType::F32)];
    let inputs_are = types.map(|(name, dtype)| builder.input(name, dtype, &[12, 12]));
    let mut outputs = Vec::new();
    for (at, (operator, terms)) in CALLS.iter().enumerate() {
        let argument = |it: &Term| match *it {
            Input(at) => Argument::Tensor(inputs_are[at]),
            Result(at) => {
                let (_, value): &(String, _) = &outputs[at];
                Argument::Tensor(*value)
            }
            Integer(number) => Argument::Integer(number),
            AllDims => Argument::All,
        };
        let arguments: Vec<Argument> = terms.iter().map(argument).collect();
        outputs.push((format!("{operator}{at}"), call(&mut builder, operator, &arguments)));
    }
    let bias = builder.parameter("bias", &[1], Init::Constant(1.0));
    let loss = call(&mut builder, "sum", &[Argument::Tensor(bias), Argument::All]);
    let compiled = finish(builder, loss, &outputs, n_devices, strategy, Optimizer::default());
    let config = Config { device, ..Config::default() };
    let mut trainer = Trainer::new_shared(Arc::new(compiled.program), config).unwrap();
    let ([x, y], numbers) = inputs();
    trainer.evaluate(&[View::I32(&x), View::I32(&y), View::F32(&numbers)]).unwrap().outputs
}

#[expect(clippy::cast_possible_truncation, reason = "integers, or rounded to single precision")]
fn check(device: Device, n_devices: usize, strategy: Strategy) {
    let found = compiled_results(device, n_devices, strategy);
    for (((operator, _), found), expected) in CALLS.iter().zip(found).zip(eager_results()) {
        let what = format!("{operator} on {n_devices} of {device:?} by {strategy:?}");
        if matches!(*operator, "eq" | "gt" | "le" | "to_f32") {
            assert_eq!(
                found.data,
                expected.iter().map(|it| *it as f32).collect::<Vec<_>>(),
                "{what}"
            );
            continue;
        }
        assert!(expected.iter().all(|it| f64::from(*it as i32) == *it), "{what}: {expected:?}");
        assert_eq!(
            found.integers,
            expected.iter().map(|it| *it as i32).collect::<Vec<_>>(),
            "{what}"
        );
    }
}

#[test]
fn programs_have_the_bits_of_eager_tensors() {
    check(Device::Cpu, 1, Strategy::Auto);
    check(Device::Cpu, 2, Strategy::Data);
    check(Device::Cpu, 2, Strategy::Model);
}

#[test]
fn gpus_have_the_bits_of_eager_tensors() {
    on_virtual_gpus("integers::gpus_have_the_bits_of_eager_tensors", &[], |_| {
        check(Device::Cuda, 1, Strategy::Auto);
        check(Device::Cuda, 2, Strategy::Data);
    });
}

// The absolute value of the least integer is none, so integers have no `abs`.
#[test]
fn integers_have_no_absolute_value() {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::I32, &[4]);
    assert!(builder.call("abs", &[Argument::Tensor(x)]).is_err());
}
