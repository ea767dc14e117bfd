//! The table in `docs/models-compared.md`. `UPDATE_EXPECT=1` rewrites it. Processors round in
//! different orders, so a test fails only if a difference is several times that of the table.

use std::{env, fmt::Write, fs};

use soybean::{
    Network,
    runtime::View,
    weights::{self, Mapping},
};
use soybean_compiler::optimizer;

use super::{
    DEVICES, Input, MOBILENET_V2, UNET, bert, expected, folder, gpt2, gru, llama, lstm,
    mobilenet_v2, recipe, trainer, trainer_of, unet, vit,
};
use crate::example_networks::{
    bert::HUGGING_FACE as BERT, gpt2::HUGGING_FACE as GPT2, llama::HUGGING_FACE as LLAMA,
    vit::HUGGING_FACE as VIT,
};

const BEGIN: &str = "<!-- table: written by tests/it/hugging_face/differences.rs -->\n";
const END: &str = "<!-- end of table -->\n";

/// How often a difference may exceed that of the table.
const TOLERANCE: f32 = 4.0;

/// The largest differences on all numbers of devices.
struct Differences {
    network: &'static str,
    peer: &'static str,
    n_parameters: usize,
    /// Of the losses of an evaluation and of a step, the logits and the gradients.
    found: [f32; 3],
}

/// Returns the differences of all networks.
fn all() -> [Differences; 8] {
    const TRANSFORMERS: &str = "transformers";
    const PYTORCH: &str = "PyTorch";
    [
        of::<gpt2::Network>("GPT-2", TRANSFORMERS, "transformers/gpt2", GPT2),
        of::<llama::Network>("Llama", TRANSFORMERS, "transformers/llama", LLAMA),
        of::<bert::Network>("BERT", TRANSFORMERS, "transformers/bert", BERT),
        of::<vit::Network>("Vision Transformer", TRANSFORMERS, "transformers/vit", VIT),
        of::<lstm::Network>("LSTM", PYTORCH, "transformers/lstm", ""),
        of::<gru::Network>("GRU", PYTORCH, "transformers/gru", ""),
        of::<unet::Network>("U-Net", PYTORCH, "networks/unet", UNET),
        of::<mobilenet_v2::Network>("MobileNetV2", PYTORCH, "networks/mobilenet_v2", MOBILENET_V2),
    ]
}

/// Compares a network by the files in this folder. Its optimizer is replaced by one that updates
/// nothing, so that gradients can be read as they are.
fn of<N: Network>(
    network: &'static str,
    peer: &'static str,
    name: &str,
    mapping: &str,
) -> Differences {
    let mapping: Mapping = mapping.parse().unwrap();
    let expected = expected(name);
    let batch: Vec<View<'_>> = expected.inputs.iter().map(Input::view).collect();
    let losses = [expected.loss, expected.step_loss.unwrap_or(expected.loss)];
    let mut gradients = trainer::<N>(1);
    weights::load(&mut gradients, folder(name).join("gradients.safetensors"), &mapping).unwrap();
    // Without running statistics.
    let gradients = gradients.trained_parameters().unwrap();
    let n_parameters = gradients.iter().map(|it| it.1.data.len()).sum();
    // Some gradients are 0 but for rounding: those of biases of keys, and of biases before norms.
    let least = 1e-3 * gradients.iter().map(|it| largest(&it.1.data)).fold(0.0, f32::max);
    let mut differences = Differences { network, peer, n_parameters, found: [0.0; 3] };
    for n_gpus in DEVICES {
        let mut recipe = recipe::<N>(n_gpus);
        recipe.options.optimizer = optimizer("gradients", &[]).unwrap();
        let mut trainer = trainer_of(&recipe);
        weights::load(&mut trainer, folder(name), &mapping).unwrap();
        let evaluation = trainer.evaluate(&batch).unwrap();
        let step_loss = trainer.step(&batch).unwrap();
        let of_gradients = gradients.iter().map(|(name, expected)| {
            relative(&trainer.gradient(name).unwrap().data, &expected.data, least)
        });
        let of_gradients = of_gradients.fold(0.0, f32::max);
        let of_losses = [evaluation.loss, step_loss].into_iter().zip(losses);
        let of_losses = of_losses.map(|(found, expected)| relative(&[found], &[expected], 0.0));
        let found = [
            of_losses.fold(0.0, f32::max),
            relative(&evaluation.outputs[0].data, &expected.logits, 0.0),
            of_gradients,
        ];
        for (most, found) in differences.found.iter_mut().zip(found) {
            *most = most.max(found);
        }
    }
    differences
}

/// Returns the largest difference over the largest expected number, or over `least` if it is more.
fn relative(found: &[f32], expected: &[f32], least: f32) -> f32 {
    assert_eq!(found.len(), expected.len());
    let differences = found.iter().zip(expected).map(|(it, expected)| (it - expected).abs());
    differences.fold(0.0, f32::max) / largest(expected).max(least)
}

fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0, |most: f32, it| most.max(it.abs()))
}

fn table(all: &[Differences]) -> String {
    let mut table = "| network | reference | parameters | loss | outputs | gradients |\n\
                     | --- | --- | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for Differences { network, peer, n_parameters, found: [loss, outputs, gradients] } in all {
        writeln!(
            table,
            "| {network} | {peer} | {n_parameters} | {loss:.1e} | {outputs:.1e} | {gradients:.1e} |"
        )
        .unwrap();
    }
    table
}

#[test]
fn differences_are_those_of_the_page() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/models-compared.md");
    let page = fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (written, after) = rest.split_once(END).expect("the table has an end");
    let all = all();
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(path, [before, BEGIN, &table(&all), END, after].concat()).unwrap();
        return;
    }
    let rows: Vec<&str> = written.lines().skip(2).collect();
    assert_eq!(
        rows.len(),
        all.len(),
        "docs/models-compared.md is stale; UPDATE_EXPECT=1 rewrites it"
    );
    for (row, Differences { network, found, .. }) in rows.iter().zip(&all) {
        let fields: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(fields[1], *network);
        for (field, found) in fields[4..7].iter().zip(found) {
            let most = TOLERANCE * field.parse::<f32>().unwrap() + f32::EPSILON;
            assert!(*found <= most, "{network}: found {found:e}, the page has {field}");
        }
    }
}
