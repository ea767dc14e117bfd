use soybean::prelude::*;

#[soybean::model(gpus = 2, mode = "inference", optimizer = sgd(momentum = 0.9), ema = 0.9)]
fn logits(x: Tensor<f32, 8, 4>) -> Tensor {
    x.matmul(param("w", [4, 2], zeros()))
}

fn main() {
    let mut predictor = logits::Predictor::new(soybean::Config::default()).unwrap();
    predictor.predict(&logits::Batch { x: &[0.0; 32] }).unwrap();
}
