#![deny(warnings, missing_docs, unreachable_pub)]
//! The module form, with the whole language.

/// A model.
#[soybean::model(gpus = RANKS / 2, optimizer = sgd(momentum = MOMENTUM, nesterov = true))]
pub mod mlp {
    use soybean::prelude::*;

    /// The size of a batch.
    pub const BATCH: usize = 16;
    const RANKS: usize = 8;
    const MOMENTUM: f64 = 1.0 - 0.1;
    const SIZES: [usize; 2] = [8, 4 * 3];
    const IS_DEEP: bool = BATCH > 8 && !(RANKS == 2);

    /// A name that only inference models generate is free in a model that is trained.
    pub struct Predictor;

    const fn doubled(n: usize) -> usize {
        2 * n
    }

    fn dense(x: Tensor, out: usize) -> Tensor {
        let scale = (2.0 / x.dim(1) as f64).sqrt();
        let w = param("w", [x.dim(1), out], normal(scale));
        x.matmul(w) + param("b", [out], zeros())
    }

    fn gated(x: Tensor<f32, BATCH, { SIZES[1] }>) -> Tensor {
        fn gate(x: Tensor) -> (Tensor, f64) {
            const SLOPE: f64 = 0.5;
            (x.sigmoid(), SLOPE)
        }
        let (open, slope) = gate(x);
        open * x.leaky_relu(slope)
    }

    /// Returns the loss and the prediction.
    pub fn forward(x: Tensor<f32, BATCH, 6>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let mut h = x;
        for (i, size) in SIZES.iter().enumerate() {
            h = dense(h, *size).relu();
            if i == 1 {
                h = gated(h);
            }
        }
        if IS_DEEP {
            for _ in 0..2 {
                h += h.matmul(param("square", [12, 12], he_normal())).gelu() / 2.0;
            }
        } else {
            h = -h;
        }
        let logits = {
            let width = doubled(3) - 1;
            dense(h, width)
        };
        (logits.cross_entropy(y) + 0.01 * (h * h).mean(..), logits)
    }
}

#[test]
fn a_module_trains_with_all_of_the_language() {
    assert_eq!(mlp::Trainer::PLAN.n_gpus, 4);
    let (x, y) = ([1.0; 6 * mlp::BATCH], [4; mlp::BATCH]);
    let mut trainer = mlp::Trainer::new(soybean::Config::default()).expect("the CPU is there");
    let loss = trainer.step(&mlp::Batch { x: &x, y: &y }).expect("the batch fits");
    assert!(loss.is_finite());
    let names: Vec<_> = trainer.parameters().expect("it runs").into_iter().map(|it| it.0).collect();
    assert_eq!(
        names,
        [
            "dense.0.w",
            "dense.0.b",
            "dense.1.w",
            "dense.1.b",
            "square.0",
            "square.1",
            "dense.2.w",
            "dense.2.b"
        ]
    );
}
