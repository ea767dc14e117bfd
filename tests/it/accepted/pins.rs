//! Pins of inputs, parameters and results.

use soybean::prelude::*;

#[soybean::model(gpus = 4)]
fn model(x: Tensor<f32, 64, 784>) -> Tensor {
    let w = param("w", [784, 12], he_normal()).tiled("[P0 r]");
    x.tiled("P0").matmul(w).relu().tiled("r P1").mean(..)
}

#[test]
fn pins_are_in_the_plan() {
    let plan = model::Trainer::PLAN;
    assert_eq!(plan.n_gpus, 4);
    let json = soybean::explain::json(plan.recipe).unwrap();
    assert!(json.contains(r#""tiling": ["P0", "r"], "pinned": true"#));
    assert!(plan.text.contains("without pins"));
}
