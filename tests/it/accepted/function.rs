#![deny(warnings, missing_docs, unreachable_pub)]
//! The function form, also within a function.

use soybean::prelude::*;

/// A linear model.
#[soybean::model(gpus = 4, optimizer = adam, strategy = "auto")]
pub fn linear(x: Tensor<f32, 8, { 2 * 3 }>, y: Tensor<f32, 8, 1>) -> (Tensor, Tensor) {
    let prediction = x.matmul(param("w", [6, 1], zeros()));
    (prediction.mse(y), prediction)
}

#[test]
fn a_function_learns() {
    #[soybean::model(gpus = 1)]
    fn local(x: Tensor<f32, 8, 6>) -> Tensor {
        (x * param("w", [], ones())).mean(..)
    }
    let _ = local::Trainer::PLAN;
    assert_eq!(linear::Trainer::PLAN.n_gpus, 4);
    let (x, y) = ([1.0; 48], [2.0; 8]);
    let batch = linear::Batch { x: &x, y: &y };
    let mut trainer = linear::Trainer::new(soybean::Config::default()).expect("the CPU is there");
    let first = trainer.step(&batch).expect("the batch fits");
    let evaluation = trainer.evaluate(&batch).expect("the batch fits");
    assert!(evaluation.loss < first);
    assert_eq!(evaluation.outputs[0].shape, [8, 1]);
}
