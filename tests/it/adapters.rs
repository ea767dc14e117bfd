//! Low-rank adapters beside frozen weights: from the weights of a trained model to predictions with
//! base and adapter from two files.

use std::{fs, path::Path, sync::Arc};

use soybean::{
    Config,
    runtime::{Trainer, View},
    weights::{self, Mapping},
};
use soybean_compiler::Recipe;
use soybean_test_support::models::{numbers, single};

/// The model whose weights are trained first.
#[soybean::model(gpus = 2, optimizer = adam())]
mod base {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 24, 16>, y: Tensor<i32, 24>) -> Tensor {
        nn::linear(nn::linear(x, 32).relu(), 4).cross_entropy(y)
    }
}

mod layers {
    use soybean::{
        nn::{Lora, linear_with_lora},
        prelude::*,
    };

    /// The layers of the base, with adapters.
    #[soybean::layer]
    pub(crate) fn with_adapters(x: Tensor) -> Tensor {
        let adapter = Lora { rank: 2, scale: 4.0 };
        linear_with_lora(linear_with_lora(x, 32, adapter).relu(), 4, adapter)
    }
}

/// The same model with adapters, which alone are trained.
#[soybean::model(gpus = 2, optimizer = adam(), freeze = ["*.linear.*"])]
mod tuned {
    use soybean::prelude::*;

    use super::layers;

    pub(crate) fn forward(x: Tensor<f32, 24, 16>, y: Tensor<i32, 24>) -> (Tensor, Tensor) {
        let logits = layers::with_adapters(x);
        (logits.cross_entropy(y), logits)
    }
}

/// The model with adapters, without a loss.
#[soybean::model(gpus = 4, mode = "inference")]
mod served {
    use soybean::prelude::*;

    use super::layers;

    pub(crate) fn forward(x: Tensor<f32, 24, 16>) -> Tensor {
        layers::with_adapters(x)
    }
}

/// Returns the name of a parameter of the base in the model with adapters.
fn with_adapter(name: &str) -> String {
    let (layer, last) = name.rsplit_once('.').unwrap();
    format!("with_adapters.{}.linear.{last}", layer.replace("linear", "linear_with_lora"))
}

fn batch(shift: usize) -> (Vec<f32>, Vec<i32>) {
    let x = single(&numbers(24 * 16, shift));
    let label = |row: &[f32]| i32::from(row[0] > 0.0) + 2 * i32::from(row[1] + row[2] > 0.0);
    let y = x.chunks(16).map(|row| (label(row) + i32::try_from(shift).unwrap()) % 4).collect();
    (x, y)
}

#[test]
fn adapters_are_trained_saved_and_served_beside_frozen_weights() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("adapters");
    fs::create_dir_all(&folder).unwrap();
    let [base_file, adapter_file] =
        ["base", "adapter"].map(|it| folder.join(format!("{it}.safetensors")));
    let config = || Config { learning_rate: 0.02, ..Config::default() };

    let mut base = base::Trainer::new(config()).unwrap();
    let (x, y) = batch(0);
    for _ in 0..40 {
        base.step(&base::Batch { x: &x, y: &y }).unwrap();
    }
    let weights_of_base = base.parameters().unwrap();
    weights::save(&base_file, &weights_of_base).unwrap();

    // The labels of the second task are others.
    let (x, y) = batch(1);
    let mut tuned = tuned::Trainer::new(config()).unwrap();
    let into_layers: Mapping = "
        linear.*.weight = with_adapters.linear_with_lora.*.linear.weight
        linear.*.bias = with_adapters.linear_with_lora.*.linear.bias
        missing *.lora.*
    "
    .parse()
    .unwrap();
    let loaded = tuned.load_weights(&base_file, &into_layers).unwrap();
    assert_eq!((loaded.n_tensors, loaded.missing.len()), (4, 4));
    let losses: Vec<f32> =
        (0..60).map(|_| tuned.step(&tuned::Batch { x: &x, y: &y }).unwrap()).collect();
    assert!(losses[59] < 0.5 * losses[0], "{losses:?}");
    let after = tuned.parameters().unwrap();
    for (name, array) in &weights_of_base {
        let name = with_adapter(name);
        let frozen = &after.iter().find(|it| it.0 == name).unwrap().1;
        assert_eq!(frozen, array, "{name}");
    }

    let adapters = tuned.trained_parameters().unwrap();
    assert!(adapters.iter().all(|it| it.0.contains(".lora.")) && adapters.len() == 4);
    weights::save(&adapter_file, &adapters).unwrap();
    let mut served = served::Predictor::new(Config::default()).unwrap();
    served.load_weights(&base_file, &into_layers).unwrap();
    let beside: Mapping = "missing *.linear.*".parse().unwrap();
    served.load_weights(&adapter_file, &beside).unwrap();
    let expected = tuned.evaluate(&tuned::Batch { x: &x, y: &y }).unwrap().outputs;
    let found = served.predict(&served::Batch { x: &x }).unwrap();
    for (found, expected) in found[0].data.iter().zip(&expected[0].data) {
        assert!((found - expected).abs() <= 1e-4, "expected {expected}, found {found}");
    }
}

#[test]
fn adapters_learn_the_same_on_any_number_of_devices() {
    let (x, y) = batch(0);
    let losses = |n_gpus: usize| -> Vec<f32> {
        let mut recipe: Recipe = tuned::Trainer::PLAN.recipe.parse().unwrap();
        recipe.options.n_gpus = n_gpus;
        let compiled = recipe.compile(&|| 0.0).unwrap();
        let bytes = compiled.program.tables.train_bytes();
        let config = Config { learning_rate: 0.02, ..Config::default() };
        let mut trainer = Trainer::new_shared(Arc::new(compiled.program), config).unwrap();
        let step = |_| {
            let loss = trainer.step(&[View::F32(&x), View::I32(&y)]).unwrap();
            assert_eq!(trainer.moved_bytes(), bytes, "{n_gpus}");
            loss
        };
        (0..20).map(step).collect()
    };
    let expected = losses(1);
    assert!(expected[19] < expected[0]);
    for n_gpus in [2, 6, 8] {
        for (found, expected) in losses(n_gpus).iter().zip(&expected) {
            assert!((found - expected).abs() <= 1e-4, "{n_gpus}: {found}, not {expected}");
        }
    }
}
