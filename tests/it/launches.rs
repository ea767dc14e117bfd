//! The launches of a training step of GPT-2 small on one GPU, counted without one, and the
//! gradients of the examples' networks, which no step transposes.
#![cfg(feature = "cuda")]

use std::collections::BTreeMap;

use soybean::{Network, runtime::queued_tasks};
use soybean_compiler::Recipe;
use soybean_plan::{BufferId, Kernel, Program, Step};

use crate::examples::{
    alexnet, cnn_digits, cnn5, digits, fashion_mnist, gan, gpt, mlp, resnet, transformer, vgg16,
};

#[soybean::model(gpus = 1, precision = "bf16", optimizer = adamw())]
mod gpt2_small {
    use soybean::prelude::*;

    use crate::example_networks::gpt::{Gpt, gpt};

    pub(crate) fn forward(x: Tensor<i32, 8, 1024>, y: Tensor<i32, 8, 1024>) -> Tensor {
        let sizes = Gpt { vocabulary: 50304, width: 768, n_heads: 12, n_layers: 12, dropout: 0.1 };
        gpt(x, sizes).cross_entropy(y)
    }
}

/// Two layers of TinyLlama. Source: Zhang et al. 2024.
#[soybean::model(gpus = 1, precision = "bf16", optimizer = adamw())]
mod two_layers_of_llama {
    use soybean::prelude::*;

    use crate::example_networks::llama::{Llama, llama};

    pub(crate) fn forward(x: Tensor<i32, 4, 1024>, y: Tensor<i32, 4, 1024>) -> Tensor {
        let sizes = Llama {
            vocabulary: 32000,
            width: 2048,
            hidden: 5632,
            n_heads: 32,
            n_key_value_heads: 4,
            n_layers: 2,
            rope_theta: 10000.0,
            eps: 1e-5,
        };
        llama(x, sizes).cross_entropy(y)
    }
}

/// The number of launches bounds how fast a step without graphs can be: each costs the host some
/// microseconds. `docs/launches.md` lists those of other networks by kernel.
#[test]
fn a_step_of_gpt2_small_has_few_launches() {
    let tasks = queued_tasks(gpt2_small::Network::model(), 0).unwrap();
    let n_launches: usize = tasks.iter().map(|it| it.n_launches).sum();
    assert_eq!(n_launches, 457);
    let is_permutation = |it: &Option<Kernel>| matches!(it, Some(Kernel::Permute(_)));
    assert!(!tasks.iter().any(|it| is_permutation(&it.kernel)), "attention permutes heads itself");
}

/// Queries have more features than keys and values, so keys and values are one product, and so are
/// the gate and the product that it scales.
#[test]
fn products_of_a_layer_of_llama_are_fifteen_calls() {
    let tasks = queued_tasks(two_layers_of_llama::Network::model(), 0).unwrap();
    let is_product = |it: &Option<Kernel>| matches!(it, Some(Kernel::Contract(_)));
    let n_calls: usize =
        tasks.iter().filter(|it| is_product(&it.kernel)).map(|it| it.n_launches).sum();
    // Five forward, with two gradients each; logits have a product of their own.
    assert_eq!(n_calls, 2 * 15 + 3);
}

/// Returns the permutations of parameters' gradients in a training step of each entry.
fn permuted_gradients(program: &Program) -> Vec<String> {
    let of_entry = |steps: &Vec<Step>| {
        let writers: BTreeMap<BufferId, &Step> =
            steps.iter().flat_map(|step| step.results.iter().map(move |it| (*it, step))).collect();
        let mut waiting: Vec<BufferId> =
            program.tables.parameters.iter().map(|it| it.buffer).collect();
        let mut found = Vec::new();
        while let Some(buffer) = waiting.pop() {
            let Some(step) = writers.get(&buffer) else { continue };
            match &program.kernels[step.kernel] {
                Kernel::Permute(it) => found.push(it.to_string()),
                // An update reads the parameter and the states that it writes.
                Kernel::Map(_) | Kernel::Communicate(_) => {
                    waiting.extend(step.inputs.iter().filter(|it| !step.results.contains(it)));
                }
                _ => {}
            }
        }
        found
    };
    program.train.iter().flat_map(of_entry).collect()
}

macro_rules! programs {
    ($($network:path),* $(,)?) => {
        [$((stringify!($network), <$network as Network>::PLAN.recipe)),*]
    };
}

#[test]
fn examples_transpose_no_gradient() {
    let recipes = programs![
        alexnet::alexnet::Network,
        cnn5::large::Network,
        cnn_digits::cnn_digits::Network,
        digits::digits::Network,
        fashion_mnist::fashion_mnist::Network,
        gan::gan::Network,
        gpt::gpt::Network,
        gpt2_small::Network,
        mlp::mlp::Network,
        resnet::resnet::Network,
        transformer::transformer::Network,
        vgg16::vgg16::Network,
    ];
    for (name, recipe) in recipes {
        let mut recipe: Recipe = recipe.parse().unwrap();
        recipe.options.n_gpus = 1;
        let program = recipe.compile(&|| 0.0).unwrap().program;
        assert_eq!(permuted_gradients(&program), [""; 0], "{name}");
    }
}
