//! Models in code that forbids `unsafe`.

use soybean::Config;

// Guards: what the macros write counts as no unsafe code of the user's, also where it is forbidden.
#[forbid(unsafe_code)]
mod safe {
    use soybean::operator::{Float, TensorMut, TensorRef};

    /// Each number over one plus its size.
    #[soybean::operator("bk->bk", gradient = none)]
    pub(crate) fn squash<F: Float>(x: TensorRef<'_, F>, result: TensorMut<'_, F>) {
        for (result, x) in result.data.iter_mut().zip(x.data) {
            *result = *x / (F::one() + x.abs());
        }
    }

    #[soybean::model(gpus = 2)]
    pub(crate) mod training {
        use super::squash;
        use soybean::{nn, prelude::*};

        pub(crate) fn forward(x: Tensor<f32, 4, 6>, y: Tensor<i32, 4>) -> Tensor {
            nn::linear(squash(x), 3).cross_entropy(y)
        }
    }

    #[soybean::model(gpus = 2, mode = "inference")]
    pub(crate) mod serving {
        use super::squash;
        use soybean::{nn, prelude::*};

        pub(crate) fn forward(x: Tensor<f32, 4, 6>) -> Tensor {
            nn::linear(squash(x), 3)
        }
    }
}

#[test]
fn models_and_operators_need_no_unsafe_code() {
    use safe::{serving, training};

    let mut trainer = training::Trainer::new(Config::default()).unwrap();
    let batch = training::Batch { x: &[0.5; 24], y: &[0, 1, 2, 0] };
    assert!(trainer.step(&batch).unwrap() > trainer.step(&batch).unwrap());
    let mut predictor = serving::Predictor::new(Config::default()).unwrap();
    predictor.set_parameters(&trainer.parameters().unwrap()).unwrap();
    let outputs = predictor.predict(&serving::Batch { x: &[0.5; 6] }).unwrap();
    assert_eq!(outputs[0].shape, [1, 3]);
}
