//! A model that keeps moving averages of its parameters, and a predictor that loads them.

/// The layers of both models.
pub mod layers {
    use soybean::{nn, prelude::*};

    /// Logits of five classes.
    #[soybean::layer]
    pub fn classifier(x: Tensor) -> Tensor {
        nn::linear(nn::linear(x, 12).relu().dropout(0.2), 5)
    }
}

/// The model that is trained.
#[soybean::model(gpus = 4, optimizer = adam(), ema = 0.9)]
pub mod learning {
    use super::layers::classifier;
    use soybean::prelude::*;

    /// Samples in a batch.
    pub const BATCH: usize = 8;

    /// Returns the cross-entropy and the logits.
    pub fn forward(x: Tensor<f32, BATCH, 16>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let logits = classifier(x);
        (logits.cross_entropy(y), logits)
    }
}

/// The predictor.
#[soybean::model(gpus = 2, mode = "inference")]
pub mod serving {
    use super::layers::classifier;
    use soybean::prelude::*;

    /// Samples in a batch.
    pub const BATCH: usize = 24;

    /// Returns the logits.
    pub fn forward(x: Tensor<f32, BATCH, 16>) -> Tensor {
        classifier(x)
    }
}
