//! All settings around an optimizer's rule, with constants.

/// A model.
#[soybean::model(
    gpus = 2,
    optimizer = adamw(weight_decay = DECAY, no_decay = ["*.b", "embed*"]),
    clip_norm = 2 * 3,
    accumulate = STEPS,
    ema = 1.0 - 0.5 * DECAY,
    non_finite = "scale",
)]
pub mod model {
    use soybean::prelude::*;

    const DECAY: f64 = 0.1;
    const STEPS: usize = 4;

    fn dense(x: Tensor) -> Tensor {
        x.matmul(param("w", [x.dim(1), 8], he_normal())) + param("b", [8], zeros())
    }

    /// The mean of the results.
    pub fn forward(x: Tensor<f32, 4, 6>) -> Tensor {
        (dense(x) * param("embedding", [8], ones())).mean(..)
    }
}

#[test]
fn updates_are_as_the_attribute_says() {
    use soybean::{Network as _, plan::NonFinite};

    let tables = model::Network::model().tables();
    assert_eq!((tables.accumulate, tables.ema), (4, Some(0.95)));
    assert_eq!(tables.non_finite, NonFinite::Scale);
    assert!(tables.gradient_norm().is_some());
    let states: Vec<&str> = tables.states.iter().map(|it| it.name.as_ref()).collect();
    assert!(states.contains(&"dense.w.ema") && states.contains(&"dense.b.gradient_sum"));
}

/// The generated functions of both kinds of steps move the bytes of the plan, and train.
#[test]
fn steps_that_share_an_update_are_generated() {
    use soybean::{Array, Network as _};

    let plan = model::Trainer::PLAN;
    let tables = model::Network::model().tables();
    assert_eq!((plan.accumulate, plan.accumulate_bytes), (4, tables.accumulate_bytes));
    let mut trainer = model::Trainer::new(soybean::Config::default()).unwrap();
    let x: Vec<f32> = (0..24_u8).map(|it| f32::from(it) / 24.0).collect();
    let before: Vec<Array> = trainer.parameters().unwrap().into_iter().map(|it| it.1).collect();
    let mut moved = 0;
    for step in 1..=4 {
        trainer.step(&model::Batch { x: &x }).unwrap();
        moved += trainer.moved_bytes();
        assert_eq!(trainer.gradient_norm().is_some(), step == 4);
        let now = trainer.parameters().unwrap();
        let is_changed = now.iter().zip(&before).any(|(now, before)| now.1 != *before);
        assert_eq!(is_changed, step == 4, "step {step}");
    }
    assert_eq!(moved, plan.bytes_total);
}
