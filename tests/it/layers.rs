//! Layers of other modules and crates: a model that uses them equals one that contains their code.

#![deny(warnings, missing_docs, unreachable_pub)]

use soybean::{Config, Network, Trainer};

const BATCH: usize = 8;
const FEATURES: usize = 6;

/// The whole model in one module.
#[soybean::model(gpus = 4, optimizer = sgd(momentum = 0.9))]
mod inline {
    use soybean::prelude::*;

    fn dense(x: Tensor, units: usize) -> Tensor {
        let w = param("w", [units, x.dim(1)], he_normal());
        x.matmul(w.transpose()) + param("b", [units], zeros())
    }

    fn residual(x: Tensor) -> Tensor {
        let width = x.dim(1);
        x + dense(dense(x, width * 2).leaky_relu(0.1), width)
    }

    fn head(x: Tensor, classes: usize) -> Tensor {
        dense(residual(residual(x)).tanh(), classes)
    }

    pub(crate) fn forward(x: Tensor<f32, 8, 6>, y: Tensor<i32, 8>) -> (Tensor, Tensor) {
        let mut h = x;
        for _ in 0..2 {
            h = residual(h).relu();
        }
        let logits = head(h, 4);
        (logits.cross_entropy(y), logits)
    }
}

mod nn {
    pub(crate) use layer_crate::blocks::residual;
    use soybean::prelude::*;

    #[soybean::constant]
    pub(super) const CLASSES: usize = 2 * 2;

    pub(crate) mod heads {
        use soybean::prelude::*;

        /// Three levels: this layer, `residual` of another crate, and the `dense` that it calls.
        #[soybean::layer]
        pub(crate) fn head(x: Tensor, classes: usize) -> Tensor {
            layer_crate::dense(super::twice(x).tanh(), classes)
        }
    }

    #[soybean::layer]
    fn twice(x: Tensor) -> Tensor {
        residual(residual(x))
    }
}

/// Names imported by `use`.
#[soybean::model(gpus = 4, optimizer = sgd(momentum = 0.9))]
mod imported {
    use super::nn::{CLASSES, heads::head};
    use layer_crate::blocks::residual;
    use soybean::prelude::*;

    pub(crate) fn forward(x: Tensor<f32, 8, 6>, y: Tensor<i32, 8>) -> (Tensor, Tensor) {
        let mut h = x;
        for _ in 0..2 {
            h = residual(h).relu();
        }
        let logits = head(h, CLASSES);
        (logits.cross_entropy(y), logits)
    }
}

/// Names imported by globs, and a renamed layer.
#[soybean::model(gpus = 4, optimizer = sgd(momentum = 0.9))]
mod renamed {
    use super::nn::{heads as tops, *};
    use layer_crate::blocks::residual as block;
    use soybean::prelude::*;
    use tops::*;

    pub(crate) fn forward(x: Tensor<f32, 8, 6>, y: Tensor<i32, 8>) -> (Tensor, Tensor) {
        fn rectified(x: Tensor) -> Tensor {
            x.relu()
        }
        let mut h = x;
        for i in 0..2 {
            h = if i == 0 { residual(h) } else { block(h) };
            h = rectified(h);
        }
        let logits = head(h, CLASSES);
        (logits.cross_entropy(y), logits)
    }
}

/// Names by path, and names imported within a function.
#[soybean::model(gpus = 4, optimizer = sgd(momentum = 0.9))]
mod by_path {
    use soybean::prelude::*;

    fn trunk(x: Tensor) -> Tensor {
        use super::nn::residual as block;
        use layer_crate::blocks;
        blocks::residual(block(x).relu()).relu()
    }

    pub(crate) fn forward(x: Tensor<f32, 8, 6>, y: Tensor<i32, 8>) -> (Tensor, Tensor) {
        let h = trunk(x);
        let logits = crate::layers::nn::heads::head(h, super::nn::CLASSES);
        (logits.cross_entropy(y), logits)
    }
}

use nn::heads::head;

/// The function form, with constant dims.
#[soybean::model(gpus = 4, optimizer = sgd(momentum = 0.9))]
fn function(x: Tensor<f32, ROWS, { COLUMNS * 2 }>, y: Tensor<i32, ROWS>) -> (Tensor, Tensor) {
    let mut h = x;
    for _ in 0..2 {
        h = nn::residual(h).relu();
    }
    let logits = head(h, 4);
    (logits.cross_entropy(y), logits)
}

use soybean::prelude::Tensor;

#[soybean::constant]
const ROWS: usize = BATCH_OF_LAYERS;
#[soybean::constant]
const BATCH_OF_LAYERS: usize = 8;
#[soybean::constant]
const COLUMNS: usize = 3;

/// Returns the losses of ten steps, and all parameters after them.
fn trained<N: Network>(
    step: impl for<'a> Fn(&mut Trainer<N>, &'a [f32], &'a [i32]) -> Result<f32, soybean::Error>,
) -> (Vec<u32>, Vec<Vec<f32>>) {
    let mut trainer = Trainer::<N>::new(Config { seed: 5, ..Config::default() }).unwrap();
    let x: Vec<f32> = (0..BATCH * FEATURES).map(|i| (i * i % 11) as f32 / 11.0).collect();
    let y: Vec<i32> = (0..4).cycle().take(BATCH).collect();
    let losses = (0..10).map(|_| step(&mut trainer, &x, &y).unwrap().to_bits()).collect();
    let parameters = trainer.parameters().unwrap();
    (losses, parameters.into_iter().map(|(_, it)| it.data).collect())
}

macro_rules! trained {
    ($model:ident) => {
        trained::<$model::Network>(|trainer, x, y| trainer.step(&$model::Batch { x, y }))
    };
}

/// Two layers of the same name, and a model within a function.
#[test]
fn layers_of_one_name_are_not_confused() {
    #[soybean::model(gpus = 1)]
    fn both(x: Tensor<f32, 4, 2>) -> Tensor {
        use layer_crate::others;
        (layer_crate::blocks::scale(x) + others::scale(x) * 2).mean(..)
    }
    let mut trainer = both::Trainer::new(Config::default()).unwrap();
    let parameters = trainer.parameters().unwrap();
    let parameters: Vec<_> =
        parameters.iter().map(|(name, it)| (name.as_str(), it.data[0])).collect();
    assert_eq!(parameters, [("scale.0.factor", 1.0), ("scale.1.shift", 0.0)]);
    let loss = trainer.step(&both::Batch { x: &[3.0; 8] }).unwrap();
    assert!((loss - 9.0).abs() < 1e-6, "{loss}");
}

#[test]
fn parameters_are_named_by_the_path_of_calls() {
    let mut trainer = Trainer::<imported::Network>::new(Config::default()).unwrap();
    let parameters = trainer.parameters().unwrap();
    let names: Vec<_> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[0], "residual.0.dense.0.w");
    assert_eq!(names[names.len() - 2..], ["head.dense.w", "head.dense.b"]);
    assert!(names.contains(&"head.twice.residual.1.dense.1.b"), "{names:?}");
}

#[test]
fn models_with_layers_train_as_those_without() {
    let expected = trained!(inline);
    assert_eq!(trained!(imported), expected);
    assert_eq!(trained!(renamed), expected);
    assert_eq!(trained!(by_path), expected);
    assert_eq!(trained!(function), expected);
}
