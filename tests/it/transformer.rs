//! A small transformer in the model language: its trainer agrees with the function itself, and
//! learns.

use soybean::{Array, Config, Tensor, eager};

use crate::support::arrays;

#[soybean::model(gpus = 4, optimizer = adam())]
mod decoder {
    use soybean::prelude::*;

    pub(crate) const BATCH: usize = 4;
    pub(crate) const TOKENS: usize = 5;
    pub(crate) const WORDS: usize = 11;
    const HEADS: usize = 2;
    const WIDTH: usize = 8;

    fn weight(shape: [usize; 3]) -> Tensor {
        param("w", shape, uniform(-0.5, 0.5))
    }

    fn normal_of(x: Tensor) -> Tensor {
        let n = x.dim(-1);
        x.layer_norm(param("w", [n], ones()), param("b", [n], zeros()), 1e-5)
    }

    fn heads(x: Tensor) -> Tensor {
        x.einsum("bnd,dhe->bhne", weight([WIDTH, HEADS, WIDTH / HEADS]))
    }

    fn attention(x: Tensor) -> Tensor {
        heads(x)
            .scaled_dot_product_attention(heads(x), heads(x), true)
            .einsum("bhne,hed->bnd", weight([HEADS, WIDTH / HEADS, WIDTH]))
    }

    fn perceptron(x: Tensor) -> Tensor {
        let inner = x.matmul(param("up", [2 * WIDTH, WIDTH], xavier_uniform()).transpose()).gelu();
        inner.matmul(param("down", [WIDTH, 2 * WIDTH], xavier_uniform()).transpose())
    }

    pub(crate) fn forward(
        x: Tensor<i32, BATCH, TOKENS>,
        y: Tensor<i32, { BATCH * TOKENS }>,
    ) -> (Tensor, Tensor) {
        let mut h = x.one_hot(WORDS).matmul(param("words", [WORDS, WIDTH], normal(1.0)));
        h += param("places", [TOKENS, WIDTH], normal(1.0));
        for _ in 0..2 {
            h += attention(normal_of(h));
            h += perceptron(normal_of(h));
        }
        let rows = normal_of(h).reshape([BATCH * TOKENS, WIDTH]);
        let logits = rows.matmul(param("out", [WORDS, WIDTH], xavier_uniform()).transpose());
        let is_kept = x.ne(0).reshape([BATCH * TOKENS, 1]);
        (logits.where_(is_kept, 0.0).cross_entropy(y), logits)
    }
}

use decoder::{BATCH, TOKENS, WORDS};

/// Words in a predictable sequence.
fn words(shift: usize) -> Vec<i32> {
    (0..BATCH * TOKENS).map(|it| i32::try_from((it * 3 + shift) % WORDS).unwrap()).collect()
}

fn tensor(shape: &[usize], labels: &[i32]) -> Tensor {
    Tensor::new(shape, &labels.iter().map(|it| f64::from(*it)).collect::<Vec<_>>())
}

fn eager_loss(parameters: &[(String, Array)], x: &[i32], y: &[i32]) -> f64 {
    let values: Vec<Tensor> = parameters.iter().map(|it| arrays::tensor(&it.1)).collect();
    eager::with_parameters(&values, || {
        let (x, y) = (tensor(&[BATCH, TOKENS], x), tensor(&[BATCH * TOKENS], y));
        decoder::forward(x, y).0.item()
    })
}

#[test]
fn it_agrees_with_its_function_and_learns() {
    let (x, y) = (words(0), words(3));
    let batch = decoder::Batch { x: &x, y: &y };
    let config = Config { seed: 1, learning_rate: 0.01, ..Config::default() };
    let mut trainer = decoder::Trainer::new(config).unwrap();
    let mut losses = Vec::new();
    for _ in 0..40 {
        let expected = eager_loss(&trainer.parameters().unwrap(), &x, &y);
        let loss = f64::from(trainer.step(&batch).unwrap());
        // Single precision through some ten layers, with sums over a dozen elements.
        assert!((loss - expected).abs() < 1e-4 * expected.max(1.0), "{loss}, expected {expected}");
        assert_eq!(trainer.moved_bytes(), decoder::Trainer::PLAN.bytes_total);
        losses.push(loss);
    }
    assert!(losses[39] < 0.5 * losses[0], "{losses:?}");
}
