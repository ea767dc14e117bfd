//! Attention over enough positions for one kernel, against the same computation by products and a
//! softmax.

use soybean::runtime::{Array, View};
use soybean_compiler::{Argument, Builder, Compiled, Optimizer, Strategy, Value};
use soybean_plan::{DType, Init, Kernel};
use soybean_test_support::models::{call, finish, numbers, single, trainer};

const SHAPE: [usize; 3] = [4, 256, 8];

/// Builds a model whose loss is a weighted sum of attention over its parameters. `attend` builds
/// the attention from queries, keys, values and a mask.
fn compile(n_gpus: usize, attend: impl FnOnce(&mut Builder, [Argument; 4]) -> Value) -> Compiled {
    let mut builder = Builder::new();
    let weights = builder.input("weights", DType::F32, &SHAPE);
    let mask = builder.input("mask", DType::F32, &[SHAPE[1], SHAPE[1]]);
    let [query, key, value] = ["query", "key", "value"]
        .map(|name| Argument::Tensor(builder.parameter(name, &SHAPE, Init::Constant(0.0))));
    let result = attend(&mut builder, [query, key, value, Argument::Tensor(mask)]);
    let weighted =
        call(&mut builder, "mul", &[Argument::Tensor(result), Argument::Tensor(weights)]);
    let loss = call(&mut builder, "sum", &[Argument::Tensor(weighted), Argument::All]);
    let outputs = [("result".to_owned(), result)];
    finish(builder, loss, &outputs, n_gpus, Strategy::Auto, Optimizer::default())
}

/// Returns the result, and the parameters after one step.
fn run(compiled: &Compiled) -> Vec<Array> {
    let n: usize = SHAPE.iter().product();
    let mut trainer = trainer(compiled, 1.0);
    let values = ["query", "key", "value"].into_iter().enumerate().map(|(seed, name)| {
        (
            name.to_owned(),
            Array { shape: SHAPE.to_vec(), data: single(&numbers(n, seed)), ..Array::default() },
        )
    });
    trainer.set_parameters(&values.collect::<Vec<_>>()).unwrap();
    let weights = single(&numbers(n, 3));
    let is_seen = |it: usize| f32::from(u8::from(it % SHAPE[1] <= it / SHAPE[1]));
    let mask: Vec<f32> = (0..SHAPE[1] * SHAPE[1]).map(is_seen).collect();
    let batch = [View::F32(&weights), View::F32(&mask)];
    let result = trainer.evaluate(&batch).unwrap().outputs.remove(0);
    trainer.step(&batch).unwrap();
    let after = trainer.parameters().unwrap().into_iter().map(|it| it.1);
    [result].into_iter().chain(after).collect()
}

#[test]
fn one_kernel_gives_what_products_and_a_softmax_give() {
    for is_causal in [false, true] {
        let composed = compile(1, |builder, [query, key, value, mask]| {
            let turned = Argument::Tensor(call(builder, "transpose", &[key]));
            let products = Argument::Tensor(call(builder, "matmul", &[query, turned]));
            let mut scores = call(builder, "mul", &[products, Argument::Float(0.125_f64.sqrt())]);
            if is_causal {
                let masked = [Argument::Tensor(scores), mask, Argument::Float(-1e30)];
                scores = call(builder, "where_", &masked);
            }
            let weights =
                call(builder, "softmax", &[Argument::Tensor(scores), Argument::Integer(-1)]);
            call(builder, "matmul", &[Argument::Tensor(weights), value])
        });
        let expected = run(&composed);
        for n_gpus in [1, 2, 4] {
            let fused = compile(n_gpus, |builder, [query, key, value, _]| {
                let arguments = [query, key, value, Argument::Boolean(is_causal)];
                call(builder, "scaled_dot_product_attention", &arguments)
            });
            let kernels = fused.program.kernels.iter();
            assert_eq!(kernels.filter(|it| matches!(it, Kernel::Attend(_))).count(), 2);
            for (found, expected) in run(&fused).iter().zip(&expected) {
                for (found, expected) in found.data.iter().zip(&expected.data) {
                    // Sums of 256 products in single precision, in another order.
                    let is_close = (found - expected).abs() <= 2e-5 * expected.abs().max(1.0);
                    assert!(is_close, "{n_gpus} devices: {found} instead of {expected}");
                }
            }
        }
    }
}
