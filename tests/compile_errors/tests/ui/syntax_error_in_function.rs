use soybean::prelude::*;

#[soybean::layer]
fn dense(x: Tensor<f32, 64, 784>) -> Tensor {
    x.relu() x.tanh()
}

#[soybean::model(gpus = 2)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let h = dense(x)
    h.mean(..)
}

fn main() {
    let mut trainer = model::Trainer::new(soybean::Config::default()).unwrap();
    trainer.step(&model::Batch { x: &[0.0; 64 * 784] }).unwrap();
}
