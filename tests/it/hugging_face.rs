//! Models whose weights come from files of Hugging Face's `transformers` or of PyTorch, by the
//! mappings that ship with them: logits, losses and gradients equal those that these found.
//!
//! `make_transformers.py` and `make_networks.py` in `tests/reference` write the files and say how.

mod adapters;
mod differences;

use std::{
    fmt::Debug,
    fs,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use soybean::{
    Array, Config, Network,
    runtime::{Trainer, View},
    weights::{self, Mapping},
};
use soybean_compiler::Recipe;

use crate::example_networks;

#[soybean::model(gpus = 2, optimizer = sgd())]
mod gpt2 {
    use soybean::prelude::*;

    use super::example_networks::gpt2::{Gpt2, gpt2};

    pub(crate) fn forward(tokens: Tensor<i32, 4, 7>, next: Tensor<i32, 4, 7>) -> (Tensor, Tensor) {
        let sizes = Gpt2 {
            vocabulary: 20,
            n_positions: 10,
            width: 16,
            n_heads: 4,
            n_layers: 2,
            dropout: 0.0,
        };
        let logits = gpt2(tokens, sizes);
        (logits.cross_entropy(next), logits)
    }
}

#[soybean::model(gpus = 2, optimizer = sgd())]
mod llama {
    use soybean::prelude::*;

    use super::example_networks::llama::{Llama, llama};

    pub(crate) fn forward(tokens: Tensor<i32, 4, 7>, next: Tensor<i32, 4, 7>) -> (Tensor, Tensor) {
        let sizes = Llama {
            vocabulary: 20,
            width: 16,
            hidden: 24,
            n_heads: 4,
            n_key_value_heads: 2,
            n_layers: 2,
            rope_theta: 500.0,
            eps: 1e-5,
        };
        let logits = llama(tokens, sizes);
        (logits.cross_entropy(next), logits)
    }
}

#[soybean::model(gpus = 2, optimizer = sgd())]
mod bert {
    use soybean::prelude::*;

    use super::example_networks::bert::{Bert, bert};

    pub(crate) fn forward(tokens: Tensor<i32, 4, 7>, y: Tensor<i32, 4, 7>) -> (Tensor, Tensor) {
        let sizes = Bert { vocabulary: 20, n_positions: 10, width: 16, n_heads: 4, n_layers: 2 };
        let logits = bert(tokens, sizes);
        (logits.cross_entropy(y), logits)
    }
}

#[soybean::model(gpus = 2, optimizer = sgd())]
mod vit {
    use soybean::prelude::*;

    use super::example_networks::vit::{Vit, vit};

    pub(crate) fn forward(images: Tensor<f32, 4, 3, 8, 8>, y: Tensor<i32, 4>) -> (Tensor, Tensor) {
        let sizes = Vit { patch: 4, width: 16, n_heads: 4, n_layers: 2, n_classes: 5 };
        let logits = vit(images, sizes);
        (logits.cross_entropy(y), logits)
    }
}

#[soybean::model(gpus = 2, optimizer = sgd())]
mod lstm {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 4, 7, 6>, y: Tensor<i32, 4, 7>) -> (Tensor, Tensor) {
        let logits = nn::linear(nn::lstm(x, 16), 5);
        (logits.cross_entropy(y), logits)
    }
}

#[soybean::model(gpus = 2, optimizer = sgd())]
mod gru {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 4, 7, 6>, y: Tensor<i32, 4, 7>) -> (Tensor, Tensor) {
        let logits = nn::linear(nn::gru(x, 16), 5);
        (logits.cross_entropy(y), logits)
    }
}

#[soybean::model(gpus = 2, optimizer = sgd())]
mod unet {
    use soybean::prelude::*;

    use super::example_networks::unet::{UNet, unet};

    pub(crate) fn forward(
        images: Tensor<f32, 4, 2, 8, 8>,
        y: Tensor<i32, 4, 8, 8>,
    ) -> (Tensor, Tensor) {
        let logits = unet(images, UNet { width: 4, n_levels: 2, n_classes: 3 });
        let logits = logits.permute([0, 2, 3, 1]);
        (logits.cross_entropy(y), logits)
    }
}

#[soybean::model(gpus = 2, optimizer = sgd())]
mod mobilenet_v2 {
    use soybean::prelude::*;

    use super::example_networks::mobilenet_v2::{MobileNetV2, mobilenet_v2};

    pub(crate) fn forward(
        images: Tensor<f32, 16, 3, 32, 32>,
        y: Tensor<i32, 16>,
    ) -> (Tensor, Tensor) {
        let logits = mobilenet_v2(images, MobileNetV2 { width: 4, n_classes: 5, dropout: 0.0 });
        (logits.cross_entropy(y), logits)
    }
}

/// The names of the networks in `make_networks.py`.
const UNET: &str = "\
    first.0.weight = unet.double_conv.conv_norm_relu.0.conv_norm.conv2d_without_bias.weight
    first.1.* = unet.double_conv.conv_norm_relu.0.conv_norm.batch_norm.*
    first.3.weight = unet.double_conv.conv_norm_relu.1.conv_norm.conv2d_without_bias.weight
    first.4.* = unet.double_conv.conv_norm_relu.1.conv_norm.batch_norm.*
    down.*.0.weight = \
        unet.unet_down.*.double_conv.conv_norm_relu.0.conv_norm.conv2d_without_bias.weight
    down.*.1.* = unet.unet_down.*.double_conv.conv_norm_relu.0.conv_norm.batch_norm.*
    down.*.3.weight = \
        unet.unet_down.*.double_conv.conv_norm_relu.1.conv_norm.conv2d_without_bias.weight
    down.*.4.* = unet.unet_down.*.double_conv.conv_norm_relu.1.conv_norm.batch_norm.*
    up.*.* = unet.unet_up.*.conv_transpose2d.*
    join.*.0.weight = \
        unet.unet_up.*.double_conv.conv_norm_relu.0.conv_norm.conv2d_without_bias.weight
    join.*.1.* = unet.unet_up.*.double_conv.conv_norm_relu.0.conv_norm.batch_norm.*
    join.*.3.weight = \
        unet.unet_up.*.double_conv.conv_norm_relu.1.conv_norm.conv2d_without_bias.weight
    join.*.4.* = unet.unet_up.*.double_conv.conv_norm_relu.1.conv_norm.batch_norm.*
    last.* = unet.conv2d.*";
const MOBILENET_V2: &str = "\
    first.0.weight = mobilenet_v2.conv_norm.0.conv2d_without_bias.weight
    first.1.* = mobilenet_v2.conv_norm.0.batch_norm.*
    blocks.0.project.0.weight = \
        mobilenet_v2.inverted_residual.0.conv_norm.conv2d_without_bias.weight
    blocks.0.project.1.* = mobilenet_v2.inverted_residual.0.conv_norm.batch_norm.*
    blocks.*.expand.0.weight = \
        mobilenet_v2.inverted_residual.*.conv_norm.0.conv2d_without_bias.weight
    blocks.*.expand.1.* = mobilenet_v2.inverted_residual.*.conv_norm.0.batch_norm.*
    blocks.*.depthwise.0.weight = \
        mobilenet_v2.inverted_residual.*.depthwise_conv2d_without_bias.weight
    blocks.*.depthwise.1.* = mobilenet_v2.inverted_residual.*.batch_norm.*
    blocks.*.project.0.weight = \
        mobilenet_v2.inverted_residual.*.conv_norm.1.conv2d_without_bias.weight
    blocks.*.project.1.* = mobilenet_v2.inverted_residual.*.conv_norm.1.batch_norm.*
    last.0.weight = mobilenet_v2.conv_norm.1.conv2d_without_bias.weight
    last.1.* = mobilenet_v2.conv_norm.1.batch_norm.*
    classifier.* = mobilenet_v2.linear.*";

const DEVICES: [usize; 4] = [1, 2, 6, 8];
/// A power of two, so that products with gradients are exact.
const LEARNING_RATE: f32 = 0.5;
const N_STEPS: usize = 10;

enum Input {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

impl Input {
    fn view(&self) -> View<'_> {
        match self {
            Self::F32(numbers) => View::F32(numbers),
            Self::I32(numbers) => View::I32(numbers),
        }
    }
}

/// What `transformers` or PyTorch found.
struct Expected {
    inputs: Vec<Input>,
    loss: f32,
    /// The loss of a training step, if it differs because batch norms use the batch.
    step_loss: Option<f32>,
    logits: Vec<f32>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference").join(name)
}

fn numbers<T: FromStr<Err: Debug>>(line: &str) -> Vec<T> {
    line.split_whitespace().map(|it| it.parse().unwrap()).collect()
}

/// The numbers of the formula in `make_networks.py`.
fn made(n: usize) -> Vec<f32> {
    (0..n).map(|it| ((31 * it + 7919) * it % 4093) as f32 / 2048.0 - 2046.0 / 2048.0).collect()
}

fn expected(name: &str) -> Expected {
    let text = fs::read_to_string(folder(name).join("expected.txt")).unwrap();
    let mut expected = Expected { inputs: vec![], loss: 0.0, step_loss: None, logits: vec![] };
    for line in text.lines() {
        match line.split_once(' ').unwrap() {
            ("f32", line) => expected.inputs.push(Input::F32(numbers(line))),
            ("i32", line) => expected.inputs.push(Input::I32(numbers(line))),
            ("made", line) => expected.inputs.push(Input::F32(made(line.parse().unwrap()))),
            ("step_loss", line) => expected.step_loss = Some(line.parse().unwrap()),
            ("loss", line) => expected.loss = line.parse().unwrap(),
            ("logits", line) => expected.logits = numbers(line),
            other => unreachable!("the script writes no {other:?}"),
        }
    }
    expected
}

fn recipe<N: Network>(n_gpus: usize) -> Recipe {
    let mut recipe: Recipe = N::PLAN.recipe.parse().unwrap();
    recipe.options.n_gpus = n_gpus;
    recipe
}

fn trainer<N: Network>(n_gpus: usize) -> Trainer {
    trainer_of(&recipe::<N>(n_gpus))
}

fn trainer_of(recipe: &Recipe) -> Trainer {
    let compiled = recipe.compile(&|| 0.0).unwrap();
    let config = Config { learning_rate: LEARNING_RATE, ..Config::default() };
    Trainer::new_shared(Arc::new(compiled.program), config).unwrap()
}

/// Fails unless the numbers differ by at most this share of the largest expected one, or of `least`
/// if that is more.
fn assert_close(what: &str, found: &[f32], expected: &[f32], share: f32, least: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(least, |most, it| most.max(it.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_close = (found - expected).abs() <= share * largest;
        assert!(is_close, "{what}, element {at}: expected {expected}, found {found}");
    }
}

/// Returns the learning rate of the steps whose losses are compared on several numbers of devices.
///
/// Batch norms in a row enlarge gradients layer by layer (Yang et al. 2019, "A Mean Field Theory of
/// Batch Normalization"): those of `MobileNetV2` reach 27 here. Longer steps enlarge each
/// difference of weights. In PyTorch in double precision, weights that differ by 2^-24 lead to
/// losses that differ by 7e-3 after two steps with a rate of 2^-10, but only by 1e-6 after ten with
/// 2^-16.
fn learning_rate_of_steps(name: &str) -> f32 {
    if name == "networks/mobilenet_v2" { 1.0 / 65536.0 } else { 0.125 }
}

/// Returns the size of gradients below which they need not be more exact. Some gradients are 0 but
/// for rounding: those of the biases of keys, and of weights and biases before batch norms, where
/// longer sums cancel.
fn least_gradient(name: &str) -> f32 {
    if name.starts_with("networks/") { 1e-2 } else { 1e-3 }
}

/// Compares the update of a step of plain gradient descent with the gradients.
fn assert_gradients(
    before: &[(String, Array)],
    after: &[(String, Array)],
    all: &[(String, Array)],
    least: f32,
) {
    for ((before, after), (name, gradient)) in before.iter().zip(after).zip(all) {
        let numbers = before.1.data.iter().zip(&after.1.data);
        let found: Vec<f32> = numbers.map(|(b, a)| (b - a) / LEARNING_RATE).collect();
        assert_close(name, &found, &gradient.data, 1e-3, least);
    }
}

/// Loads the weights, compares logits, loss and gradients, and returns the losses of steps.
fn losses<N: Network>(name: &str, mapping: &Mapping, n_gpus: usize) -> Vec<f32> {
    let expected = expected(name);
    let batch: Vec<View<'_>> = expected.inputs.iter().map(Input::view).collect();
    let mut gradients = trainer::<N>(1);
    weights::load(&mut gradients, folder(name).join("gradients.safetensors"), mapping).unwrap();

    let mut trainer = trainer::<N>(n_gpus);
    let loaded = weights::load(&mut trainer, folder(name), mapping).unwrap();
    assert!(loaded.missing.is_empty() && loaded.unused.is_empty(), "{loaded:?}");
    let evaluation = trainer.evaluate(&batch).unwrap();
    assert_close("logits", &evaluation.outputs[0].data, &expected.logits, 1e-4, 1e-3);
    let before = trainer.parameters().unwrap();
    let first = trainer.step(&batch).unwrap();
    let step_loss = expected.step_loss.unwrap_or(expected.loss);
    assert_close("loss", &[evaluation.loss, first], &[expected.loss, step_loss], 1e-4, 1e-3);
    let (after, all) = (trainer.parameters().unwrap(), gradients.parameters().unwrap());
    assert_gradients(&before, &after, &all, least_gradient(name));

    weights::load(&mut trainer, folder(name), mapping).unwrap();
    trainer.set_learning_rate(learning_rate_of_steps(name));
    (0..=N_STEPS).map(|_| trainer.step(&batch).unwrap()).collect()
}

fn check<N: Network>(name: &str, mapping: &str) {
    let mapping: Mapping = mapping.parse().unwrap();
    let on_one = losses::<N>(name, &mapping, 1);
    assert!(on_one[N_STEPS] < 0.98 * on_one[0], "{on_one:?}");
    for n_gpus in DEVICES.into_iter().skip(1) {
        let found = losses::<N>(name, &mapping, n_gpus);
        // Sums have another order, and their last digits change the next updates.
        assert_close("losses", &found, &on_one, 1e-4, 1e-3);
    }
}

#[test]
fn gpt2_computes_what_transformers_computes() {
    check::<gpt2::Network>("transformers/gpt2", example_networks::gpt2::HUGGING_FACE);
}

#[test]
fn llama_computes_what_transformers_computes() {
    check::<llama::Network>("transformers/llama", example_networks::llama::HUGGING_FACE);
}

#[test]
fn bert_computes_what_transformers_computes() {
    check::<bert::Network>("transformers/bert", example_networks::bert::HUGGING_FACE);
}

#[test]
fn vit_computes_what_transformers_computes() {
    check::<vit::Network>("transformers/vit", example_networks::vit::HUGGING_FACE);
}

#[test]
fn recurrent_layers_compute_what_pytorch_computes() {
    // The names are PyTorch's.
    check::<lstm::Network>("transformers/lstm", "");
    check::<gru::Network>("transformers/gru", "");
}

#[test]
fn unet_computes_what_pytorch_computes() {
    check::<unet::Network>("networks/unet", UNET);
}

#[test]
fn mobilenet_v2_computes_what_pytorch_computes() {
    check::<mobilenet_v2::Network>("networks/mobilenet_v2", MOBILENET_V2);
}

#[test]
fn published_names_of_gpt2_are_known() {
    let mapping: Mapping = example_networks::gpt2::HUGGING_FACE.parse().unwrap();
    let load = |name: &str| {
        let mut trainer = trainer::<gpt2::Network>(2);
        let loaded = weights::load(&mut trainer, folder(name), &mapping).unwrap();
        (trainer.parameters().unwrap(), loaded.unused)
    };
    let (published, unused) = load("transformers/gpt2/published");
    assert_eq!(unused, ["h.0.attn.bias", "h.1.attn.bias"]);
    assert_eq!(published, load("transformers/gpt2").0);
}
