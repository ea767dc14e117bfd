//! A model that keeps moving averages of its parameters, and a predictor that takes them.

pub(crate) mod layers {
    use soybean::{nn, prelude::*};

    #[soybean::layer]
    pub(crate) fn classifier(x: Tensor) -> Tensor {
        nn::linear(nn::linear(x, 12).relu().dropout(0.2), 5)
    }
}

#[soybean::model(gpus = 4, optimizer = adam(), ema = 0.9)]
pub(crate) mod learning {
    use super::layers::classifier;
    use soybean::prelude::*;

    pub(crate) const BATCH: usize = 8;

    pub(crate) fn forward(x: Tensor<f32, BATCH, 16>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let logits = classifier(x);
        (logits.cross_entropy(y), logits)
    }
}

#[soybean::model(gpus = 2, mode = "inference")]
pub(crate) mod serving {
    use super::layers::classifier;
    use soybean::prelude::*;

    pub(crate) const BATCH: usize = 24;

    pub(crate) fn forward(x: Tensor<f32, BATCH, 16>) -> Tensor {
        classifier(x)
    }
}
