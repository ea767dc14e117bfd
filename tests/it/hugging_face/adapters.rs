//! GPT-2 with low-rank adapters beside frozen weights of a file of `transformers`.

use std::{env, fs, path::Path};

use soybean::{
    runtime::{Trainer, View},
    weights::{self, Mapping},
};
use soybean_test_support::{example, run};

use super::{DEVICES, Expected, Input, assert_close, expected, folder, trainer};
use crate::example_networks::gpt2::HUGGING_FACE;

#[soybean::model(
    gpus = 8,
    optimizer = adam(),
    freeze = ["*.wte", "*.wpe", "*.layer_norm.*", "*.transposed_linear.*"]
)]
mod tuned {
    use soybean::{nn::Lora, prelude::*};

    use crate::example_networks::gpt2_lora::{Gpt2, gpt2};

    pub(crate) fn forward(tokens: Tensor<i32, 4, 7>, next: Tensor<i32, 4, 7>) -> (Tensor, Tensor) {
        let sizes = Gpt2 { vocabulary: 20, n_positions: 10, width: 16, n_heads: 4, n_layers: 2 };
        let logits = gpt2(tokens, sizes, Lora { rank: 2, scale: 4.0 });
        (logits.cross_entropy(next), logits)
    }
}

const NAME: &str = "transformers/gpt2";
const N_STEPS: usize = 30;

/// Returns a trainer with the weights of the file, and with adapters that change nothing yet.
fn from_file(n_gpus: usize) -> Trainer {
    let mapping: Mapping = format!("{HUGGING_FACE}\nmissing *.lora.*").parse().unwrap();
    let mut trainer = trainer::<tuned::Network>(n_gpus);
    let loaded = weights::load(&mut trainer, folder(NAME), &mapping).unwrap();
    let expected = (0..2).flat_map(|it| ["a", "b"].map(|last| format!("{}.{last}", adapter(it))));
    assert_eq!(loaded.missing, expected.collect::<Vec<String>>());
    assert!(loaded.unused.is_empty(), "{loaded:?}");
    trainer
}

fn adapter(block: usize) -> String {
    format!("gpt2.gpt2_block.{block}.gpt2_attention.lora")
}

/// Trains the adapters; returns the losses, and the logits after them. Checks that all other
/// weights stay as they are, and that the adapters come back from a file of their own.
fn tune(n_gpus: usize, expected: &Expected) -> (Vec<f32>, Vec<f32>) {
    let batch: Vec<View<'_>> = expected.inputs.iter().map(Input::view).collect();
    let mut trainer = from_file(n_gpus);
    let before = trainer.parameters().unwrap();
    let evaluation = trainer.evaluate(&batch).unwrap();
    assert_close("logits", &evaluation.outputs[0].data, &expected.logits, 1e-4, 1e-3);
    trainer.set_learning_rate(0.02);
    let losses = (0..N_STEPS).map(|_| trainer.step(&batch).unwrap()).collect();
    for (before, after) in before.iter().zip(&trainer.parameters().unwrap()) {
        assert_eq!(before == after, !before.0.contains(".lora."), "{}", before.0);
    }

    let adapters = trainer.trained_parameters().unwrap();
    let shapes: Vec<&[usize]> = adapters.iter().map(|it| &it.1.shape[..]).collect();
    assert_eq!(shapes, [[2, 16], [48, 2], [2, 16], [48, 2]]);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gpt2-lora-{n_gpus}"));
    fs::create_dir_all(&file).unwrap();
    let file = file.join("adapters.safetensors");
    weights::save(&file, &adapters).unwrap();
    let mut loaded = from_file(n_gpus);
    let alone =
        "missing *.wte\nmissing *.wpe\nmissing *.layer_norm.*\nmissing *.transposed_linear.*";
    weights::load(&mut loaded, &file, &alone.parse().unwrap()).unwrap();
    let [logits, again] =
        [&mut trainer, &mut loaded].map(|it| it.evaluate(&batch).unwrap().outputs.remove(0).data);
    assert_eq!(logits, again);
    assert_ne!(logits, evaluation.outputs[0].data);
    (losses, logits)
}

#[test]
fn adapters_of_gpt2_learn_the_same_on_any_number_of_devices() {
    let expected = expected(NAME);
    let (on_one, logits) = tune(1, &expected);
    assert!(on_one[N_STEPS - 1] < 0.9 * on_one[0], "{on_one:?}");
    for n_gpus in DEVICES.into_iter().skip(1) {
        let (losses, of_these) = tune(n_gpus, &expected);
        // Sums have another order, and their last digits change the next updates.
        assert_close("losses", &losses, &on_one, 1e-4, 1e-3);
        assert_close("logits after training", &of_these, &logits, 1e-3, 1e-3);
    }
}

#[test]
fn check_compares_adapters_with_the_function() {
    let (code, output, errors) = run(example!("adapters_program").arg("check"));
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert!(output.contains("first update"), "{output}");
}
