//! The batch cannot be divided by the number of GPUs, but other dims can.

use soybean::prelude::*;

#[soybean::model(gpus = 4)]
fn model(x: Tensor<f32, 7, 8>) -> Tensor {
    x.matmul(param("w", [8, 12], he_normal())).relu().mean(..)
}

#[test]
fn a_batch_that_cannot_be_divided_trains() {
    let mut trainer = model::Trainer::new(soybean::Config::default()).expect("the CPU is there");
    trainer.step(&model::Batch { x: &[1.0; 56] }).expect("the batch fits");
}
