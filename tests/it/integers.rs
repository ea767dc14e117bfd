//! Integers beyond 2^24, where single precision has no neighbors: in comparisons, lookups, masks
//! and outputs.

use std::sync::Arc;

use soybean::{
    Config, Device,
    runtime::{Array, Trainer, View},
};
use soybean_compiler::{Argument, Builder, Optimizer, Strategy, Value};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_plan::{DType, Init};
use soybean_test_support::models::{call, finish, trainer};

/// The first integer that single precision lacks.
const ODD: i32 = (1 << 24) + 1;

/// Compiles a model with these outputs. Its loss reads a parameter alone.
fn compiled(
    builder: Builder,
    outputs: &[(String, Value)],
    n_gpus: usize,
    strategy: Strategy,
) -> Trainer {
    compiled_on(Device::Cpu, builder, outputs, n_gpus, strategy)
}

fn compiled_on(
    device: Device,
    mut builder: Builder,
    outputs: &[(String, Value)],
    n_gpus: usize,
    strategy: Strategy,
) -> Trainer {
    let bias = builder.parameter("bias", &[2], Init::Constant(1.0));
    let loss = call(&mut builder, "sum", &[Argument::Tensor(bias), Argument::All]);
    let compiled = finish(builder, loss, outputs, n_gpus, strategy, Optimizer::default());
    let config = Config { device, learning_rate: 0.1, ..Config::default() };
    Trainer::new_shared(Arc::new(compiled.program), config).unwrap()
}

#[test]
fn comparisons() {
    type Rule = fn(&i32, &i32) -> bool;
    let left = [ODD - 1, ODD, ODD, -ODD, i32::MAX, i32::MIN];
    let right = [ODD, ODD - 1, ODD, -ODD + 1, i32::MAX - 1, i32::MAX];
    let rules: [(&str, Rule); 6] = [
        ("eq", i32::eq),
        ("ne", i32::ne),
        ("lt", i32::lt),
        ("le", i32::le),
        ("gt", i32::gt),
        ("ge", i32::ge),
    ];
    for n_gpus in [1, 2] {
        for (operator, rule) in rules {
            let mut builder = Builder::new();
            let [x, y] = ["x", "y"].map(|it| builder.input(it, DType::I32, &[6]));
            let others = [Argument::Tensor(y), Argument::Integer(ODD.into())];
            let outputs = others.map(|other| {
                let result = call(&mut builder, operator, &[Argument::Tensor(x), other]);
                (result.to_string(), result)
            });
            let mut trainer = compiled(builder, &outputs, n_gpus, Strategy::Auto);
            let found = trainer.predict(&[View::I32(&left), View::I32(&right)]).unwrap();
            let expected = |right: &[i32; 6]| -> Vec<f32> {
                left.iter().zip(right).map(|(x, y)| f32::from(rule(x, y))).collect()
            };
            assert_eq!(found[0].data, expected(&right), "{operator}");
            assert_eq!(found[1].data, expected(&[ODD; 6]), "{operator}");
        }
    }
}

/// Results are integers of 32 bits where they are stored, and where a comparison reads them in its
/// own kernel.
#[test]
fn arithmetic() {
    type Rule = fn(i32, i32) -> i32;
    let left = [ODD, -ODD, i32::MAX, i32::MIN, -7, i32::MIN];
    let right = [3, 2, 2, -1, -2, 0];
    let rules: [(&str, Rule); 7] = [
        ("add", i32::wrapping_add),
        ("sub", i32::wrapping_sub),
        ("mul", i32::wrapping_mul),
        ("maximum", i32::max),
        ("minimum", i32::min),
        ("floor_divide", |x, y| match y {
            0 => 0,
            -1 => x.wrapping_neg(),
            _ if x.rem_euclid(y) != 0 && y < 0 => x.div_euclid(y) - 1,
            _ => x.div_euclid(y),
        }),
        ("remainder", |x, y| match y {
            0 => x,
            -1 => 0,
            _ => x.rem_euclid(y.abs()) + if y < 0 && x.rem_euclid(-y) != 0 { y } else { 0 },
        }),
    ];
    for n_gpus in [1, 2] {
        for (operator, rule) in rules {
            let mut builder = Builder::new();
            let [x, y, z] = ["x", "y", "z"].map(|it| builder.input(it, DType::I32, &[6]));
            let result = call(&mut builder, operator, &[x, y].map(Argument::Tensor));
            let is_equal = call(&mut builder, "eq", &[result, z].map(Argument::Tensor));
            let by_number =
                call(&mut builder, operator, &[Argument::Tensor(x), Argument::Integer(-5)]);
            let is_kept = [call(
                &mut builder,
                "where_",
                &[Argument::Tensor(x), Argument::Tensor(is_equal), Argument::Integer(0)],
            )];
            let outputs = [result, is_equal, by_number, is_kept[0]];
            let outputs = outputs.map(|it| (it.to_string(), it));
            let mut trainer = compiled(builder, &outputs, n_gpus, Strategy::Auto);
            let expected: Vec<i32> = left.iter().zip(&right).map(|(x, y)| rule(*x, *y)).collect();
            let batch = [&left[..], &right, &expected].map(View::I32);
            let found = trainer.evaluate(&batch).unwrap().outputs;
            assert_eq!(found[0].integers, expected, "{operator}");
            assert_eq!(found[1].data, [1.0; 6], "{operator}");
            assert_eq!(found[2].integers, left.map(|it| rule(it, -5)), "{operator}");
            assert_eq!(found[3].integers, left, "{operator}");
        }
    }
}

/// Checks that reductions are exact and wrap around, over split and over padded dims.
fn check_reductions(device: Device, n_gpus: usize, strategy: Strategy) {
    let x = [ODD, ODD + 2, i32::MAX, i32::MAX - 1, 7, 11, ODD + 1, 3, i32::MAX, 5, 9, ODD];
    let rows = || x.chunks(3).map(<[i32]>::to_vec);
    let columns = || (0..3).map(|at| x.iter().copied().skip(at).step_by(3).collect::<Vec<_>>());
    let sum = |it: Vec<i32>| it.into_iter().fold(0, i32::wrapping_add);
    let largest = |it: Vec<i32>| it.into_iter().max().unwrap();
    let smallest = |it: Vec<i32>| it.into_iter().min().unwrap();
    let mut running = x;
    (3..12).for_each(|at| running[at] = running[at - 3].wrapping_add(x[at]));
    let (first, last) = (Argument::Integer(0), Argument::Integer(-1));
    let calls: [(&str, Argument, Vec<i32>); 8] = [
        ("sum", Argument::All, vec![sum(x.to_vec())]),
        ("sum", last.clone(), rows().map(sum).collect()),
        ("sum", first.clone(), columns().map(sum).collect()),
        ("max", Argument::All, vec![i32::MAX]),
        ("max", last, rows().map(largest).collect()),
        ("min", Argument::All, vec![3]),
        ("min", first.clone(), columns().map(smallest).collect()),
        ("cumsum", first, running.to_vec()),
    ];
    let mut builder = Builder::new();
    let input = builder.input("x", DType::I32, &[4, 3]);
    let moved = call(&mut builder, "sub", &[Argument::Tensor(input), Argument::Integer(1)]);
    let outputs = calls.each_ref().map(|(operator, dims, _)| {
        let result = call(&mut builder, operator, &[Argument::Tensor(moved), dims.clone()]);
        (result.to_string(), result)
    });
    let mut trainer = compiled_on(device, builder, &outputs, n_gpus, strategy);
    let found = trainer.evaluate(&[View::I32(&x.map(|it| it.wrapping_add(1)))]).unwrap().outputs;
    for ((operator, dims, expected), found) in calls.iter().zip(found) {
        assert_eq!(&found.integers, expected, "{operator} {dims:?} on {n_gpus} by {strategy:?}");
    }
}

#[test]
fn reductions() {
    for n_gpus in [1, 2, 4, 5, 6] {
        for strategy in [Strategy::Auto, Strategy::Data, Strategy::Model] {
            check_reductions(Device::Cpu, n_gpus, strategy);
        }
    }
}

#[test]
fn reductions_on_gpus() {
    on_virtual_gpus("integers::reductions_on_gpus", &[], |_| {
        check_reductions(Device::Cuda, 4, Strategy::Data);
        check_reductions(Device::Cuda, 6, Strategy::Model);
    });
}

#[test]
fn rows_and_classes() {
    let n_rows = 16_777_226;
    let numbers: Vec<i32> = (0..8).map(|it| ODD - 3 + it).collect();
    let mut builder = Builder::new();
    let indices = builder.input("indices", DType::I32, &[8]);
    let table = builder.parameter("table", &[n_rows, 1], Init::Constant(0.0));
    let arguments = [indices, table].map(Argument::Tensor);
    let rows = call(&mut builder, "embedding", &arguments);
    let n_classes = Argument::Integer(i64::try_from(n_rows).unwrap());
    let hot = call(&mut builder, "one_hot", &[Argument::Tensor(indices), n_classes]);
    let n_ones = call(&mut builder, "sum", &[Argument::Tensor(hot), Argument::Integer(1)]);
    let loss = call(&mut builder, "mean", &[Argument::Tensor(rows), Argument::All]);
    let outputs = [("rows".to_owned(), rows), ("ones".to_owned(), n_ones)];
    let optimizer = Optimizer::default();
    let compiled = finish(builder, loss, &outputs, 2, Strategy::Model, optimizer);
    let mut trainer = trainer(&compiled, 8.0);
    let data = (0..n_rows).map(|it| (it % 1000) as f32).collect();
    let array = Array { shape: vec![n_rows, 1], data, ..Array::default() };
    trainer.set_parameters(&[("table".to_owned(), array)]).unwrap();
    let found = trainer.predict(&[View::I32(&numbers)]).unwrap();
    let expected: Vec<f32> = numbers.iter().map(|it| (it % 1000) as f32).collect();
    assert_eq!(found[0].data, expected);
    assert_eq!(found[1].data, [1.0; 8]);
    // Each looked-up row has the gradient 1/8.
    trainer.step(&[View::I32(&numbers)]).unwrap();
    let after = trainer.predict(&[View::I32(&numbers)]).unwrap();
    let expected: Vec<f32> = expected.iter().map(|it| it - 1.0).collect();
    assert_eq!(after[0].data, expected);
}

#[test]
fn outputs() {
    let x = [ODD, -ODD, i32::MAX, i32::MIN, 0, 1, -1, ODD + 2];
    for n_gpus in [1, 2, 4] {
        let mut builder = Builder::new();
        let input = builder.input("x", DType::I32, &[4, 2]);
        let transposed = call(&mut builder, "transpose", &[Argument::Tensor(input)]);
        let outputs = [("t".to_owned(), transposed), ("x".to_owned(), input)];
        let mut trainer = compiled(builder, &outputs, n_gpus, Strategy::Auto);
        let found = trainer.evaluate(&[View::I32(&x)]).unwrap().outputs;
        let [transposed, same] = &found[..] else { unreachable!("there are two outputs") };
        let even_then_odd = [0, 2, 4, 6, 1, 3, 5, 7].map(|it| x[it]);
        assert_eq!(transposed.integers, even_then_odd);
        assert_eq!(same.integers, x);
        assert_eq!(same.data, x.map(|it| it as f32));
        // Three rows of a batch of four, then two batches and one row.
        for n_rows in [3, 9] {
            let rows: Vec<i32> = x.iter().copied().cycle().take(2 * n_rows).collect();
            let found = trainer.predict(&[View::I32(&rows)]).unwrap();
            assert_eq!(found[1].integers, rows);
            let columns = [0, 1].map(|it| rows.iter().copied().skip(it).step_by(2)).into_iter();
            assert_eq!(found[0].integers, columns.flatten().collect::<Vec<i32>>());
        }
    }
}
