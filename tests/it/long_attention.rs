//! Attention over enough positions for one kernel, against the same computation by products and a
//! softmax.

use soybean::runtime::{Array, View};
use soybean_compiler::{Argument, Builder, Compiled, Optimizer, Strategy, Value};
use soybean_plan::{DType, Init, Kernel};
use soybean_test_support::models::{call, finish, numbers, single, trainer};

/// Of queries.
const SHAPE: [usize; 3] = [12, 256, 8];

/// Builds a model whose loss is a weighted sum of attention over its parameters. `attend` builds
/// the attention from queries, keys, values and a mask.
fn compile(
    n_gpus: usize,
    n_key_heads: usize,
    attend: impl FnOnce(&mut Builder, [Argument; 4]) -> Value,
) -> Compiled {
    let mut builder = Builder::new();
    let weights = builder.input("weights", DType::F32, &SHAPE);
    let mask = builder.input("mask", DType::F32, &[SHAPE[1], SHAPE[1]]);
    let [query, key, value] = shapes(n_key_heads)
        .map(|(name, it)| Argument::Tensor(builder.parameter(name, &it, Init::Constant(0.0))));
    let result = attend(&mut builder, [query, key, value, Argument::Tensor(mask)]);
    let weighted =
        call(&mut builder, "mul", &[Argument::Tensor(result), Argument::Tensor(weights)]);
    let loss = call(&mut builder, "sum", &[Argument::Tensor(weighted), Argument::All]);
    let outputs = [("result".to_owned(), result)];
    finish(builder, loss, &outputs, n_gpus, Strategy::Auto, Optimizer::default())
}

/// Returns the parameters with their shapes.
fn shapes(n_key_heads: usize) -> [(&'static str, [usize; 3]); 3] {
    let keys = [n_key_heads, SHAPE[1], SHAPE[2]];
    [("query", SHAPE), ("key", keys), ("value", keys)]
}

/// Returns the result, and the parameters after one step. The mask is causal, perhaps in a window.
fn run(compiled: &Compiled, n_key_heads: usize, window: Option<usize>) -> Vec<Array> {
    let n: usize = SHAPE.iter().product();
    let mut trainer = trainer(compiled, 1.0);
    let values = shapes(n_key_heads).into_iter().enumerate().map(|(seed, (name, shape))| {
        let data = single(&numbers(shape.iter().product(), seed));
        (name.to_owned(), Array { shape: shape.to_vec(), data, ..Array::default() })
    });
    trainer.set_parameters(&values.collect::<Vec<_>>()).unwrap();
    let weights = single(&numbers(n, 3));
    let is_seen = |it: usize| {
        let (query, key) = (it / SHAPE[1], it % SHAPE[1]);
        f32::from(u8::from(key <= query && window.is_none_or(|it| key + it > query)))
    };
    let mask: Vec<f32> = (0..SHAPE[1] * SHAPE[1]).map(is_seen).collect();
    let batch = [View::F32(&weights), View::F32(&mask)];
    let result = trainer.evaluate(&batch).unwrap().outputs.remove(0);
    trainer.step(&batch).unwrap();
    let after = trainer.parameters().unwrap().into_iter().map(|it| it.1);
    [result].into_iter().chain(after).collect()
}

/// Returns attention as products and a softmax, with a copy of keys and values for each head.
fn composed(
    builder: &mut Builder,
    [query, key, value, mask]: [Argument; 4],
    n_key_heads: usize,
    is_masked: bool,
) -> Value {
    let group = i64::try_from(SHAPE[0] / n_key_heads).unwrap();
    let [key, value] = [key, value].map(|it| {
        let repeated = [it, Argument::Integer(group), Argument::Integer(0)];
        Argument::Tensor(call(builder, "repeat_interleave", &repeated))
    });
    let turned = Argument::Tensor(call(builder, "transpose", &[key]));
    let products = Argument::Tensor(call(builder, "matmul", &[query, turned]));
    let mut scores = call(builder, "mul", &[products, Argument::Float(0.125_f64.sqrt())]);
    if is_masked {
        let masked = [Argument::Tensor(scores), mask, Argument::Float(-1e30)];
        scores = call(builder, "where_", &masked);
    }
    let weights = call(builder, "softmax", &[Argument::Tensor(scores), Argument::Integer(-1)]);
    call(builder, "matmul", &[Argument::Tensor(weights), value])
}

fn check(
    operator: &str,
    last: &Argument,
    n_key_heads: usize,
    (is_masked, window): (bool, Option<usize>),
) {
    let expected = compile(1, n_key_heads, |builder, operands| {
        composed(builder, operands, n_key_heads, is_masked)
    });
    let expected = run(&expected, n_key_heads, window);
    for n_gpus in [1, 2, 4, 6, 8] {
        let fused = compile(n_gpus, n_key_heads, |builder, [query, key, value, _]| {
            call(builder, operator, &[query, key, value, last.clone()])
        });
        let kernels = fused.program.kernels.iter();
        assert_eq!(kernels.filter(|it| matches!(it, Kernel::Attend(_))).count(), 2);
        for (found, expected) in run(&fused, n_key_heads, window).iter().zip(&expected) {
            assert_eq!(found.data.len(), expected.data.len());
            for (found, expected) in found.data.iter().zip(&expected.data) {
                // Sums of at most 12 x 256 products in single precision, in another order.
                let is_close = (found - expected).abs() <= 2e-5 * expected.abs().max(1.0);
                assert!(is_close, "{n_gpus} devices: {found} instead of {expected}");
            }
        }
    }
}

#[test]
fn one_kernel_gives_what_products_and_a_softmax_give() {
    for n_key_heads in [12, 4, 1] {
        for is_causal in [false, true] {
            let last = Argument::Boolean(is_causal);
            check("scaled_dot_product_attention", &last, n_key_heads, (is_causal, None));
        }
    }
}

#[test]
fn one_kernel_sees_the_keys_of_a_window() {
    for (n_key_heads, window) in [(12, 1), (12, 50), (4, 129), (1, 17)] {
        let last = Argument::Integer(i64::try_from(window).unwrap());
        check("sliding_window_attention", &last, n_key_heads, (true, Some(window)));
    }
}
