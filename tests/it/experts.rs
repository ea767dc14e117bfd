//! Networks that choose elements, and random ones: a mixture of experts, and a variational
//! autoencoder. Their losses are the same on any number of devices.

use std::sync::Arc;

use soybean::{
    Config, Network,
    eager::{self, Tensor},
    runtime::{Trainer, View},
};
use soybean_compiler::{Compiled, Recipe};
use soybean_plan::Placement;

use crate::support::arrays::tensor;

/// The numbers of devices on which losses are compared.
const DEVICES: [usize; 4] = [1, 2, 6, 8];

const WIDTH: usize = 16;
const EXPERTS: usize = 8;
const HIDDEN: usize = 48;
const CHOSEN: usize = 2;

/// Declares a model of `tokens` in `groups`, with 0.8 times as many places as there are choices.
macro_rules! routed {
    ($name:ident: $tokens:literal tokens in $groups:literal groups) => {
        #[soybean::model(gpus = 8, optimizer = sgd())]
        mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(
                x: Tensor<f32, $tokens, 16>,
                y: Tensor<f32, $tokens, 16>,
            ) -> (Tensor, Tensor, Tensor) {
                let options = nn::MixtureOfExperts {
                    n_experts: 8,
                    hidden: 48,
                    n_chosen: 2,
                    capacity_factor: 0.8,
                    n_groups: $groups,
                };
                let (found, balance) = nn::mixture_of_experts(x, options);
                (found.mse(y) + balance * 0.01, found, balance)
            }
        }
    };
}

routed!(routed: 48 tokens in 0 groups);
routed!(grouped: 192 tokens in 4 groups);
// Halves of 1024 tokens have 32 choices for an expert twice, and quarters of 256 tokens once more.
routed!(many: 1024 tokens in 0 groups);

/// Declares a model with a wide layer of experts between two linear layers.
macro_rules! wide {
    ($name:ident: $experts:literal experts, $tokens:literal tokens in $groups:literal groups) => {
        #[soybean::model(gpus = 8, optimizer = adamw())]
        mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(
                x: Tensor<f32, $tokens, 1024>,
                y: Tensor<i32, $tokens>,
            ) -> Tensor {
                let h = nn::linear_without_bias(x, 1024);
                let options = nn::MixtureOfExperts {
                    n_experts: $experts,
                    hidden: 4096,
                    n_chosen: 2,
                    capacity_factor: 1.25,
                    n_groups: $groups,
                };
                let (found, balance) = nn::mixture_of_experts(h, options);
                nn::linear_without_bias(h + found, 1000).cross_entropy(y) + balance * 0.01
            }
        }
    };
}

// Plans of these are made, but not trained.
wide!(few_in_one: 8 experts, 4096 tokens in 1 groups);
wide!(few_in_groups: 8 experts, 4096 tokens in 0 groups);
wide!(many_in_one: 64 experts, 8192 tokens in 1 groups);
wide!(many_in_groups: 64 experts, 8192 tokens in 0 groups);
wide!(many_in_32: 64 experts, 8192 tokens in 32 groups);

#[soybean::model(gpus = 8, optimizer = adam())]
mod variational {
    use soybean::{nn::linear, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 24, 32>) -> (Tensor, Tensor) {
        let h = linear(x, 24).tanh();
        let (mean, log_variance) = (linear(h, 6), linear(h, 6));
        let latent = mean + (log_variance * 0.5).exp() * mean.randn_like();
        let logits = linear(linear(latent, 24).tanh(), 32);
        let divergence = (mean.square() + log_variance.exp() - log_variance - 1.0) * 0.5;
        let found = logits.binary_cross_entropy_with_logits(x) * 32.0;
        (found + divergence.sum(1).mean(..), logits)
    }
}

#[soybean::model(gpus = 2)]
mod chosen {
    use soybean::prelude::*;

    pub(crate) fn forward(index: Tensor<i32, 4, 2>) -> Tensor {
        param("x", [4, 6], normal(1.0)).gather(1, index).sum(..)
    }
}

fn compiled<N: Network>(n_gpus: usize) -> Compiled {
    let mut recipe: Recipe = N::PLAN.recipe.parse().unwrap();
    recipe.options.n_gpus = n_gpus;
    recipe.compile(&|| 0.0).unwrap()
}

fn trainer<N: Network>(n_gpus: usize, learning_rate: f32) -> Trainer {
    let config = Config { learning_rate, ..Config::default() };
    Trainer::new_shared(Arc::new(compiled::<N>(n_gpus).program), config).unwrap()
}

/// Trains on each number of devices, and returns the losses on one.
fn check_losses<N: Network>(batch: &[View<'_>], learning_rate: f32, n_steps: usize) -> Vec<f32> {
    let losses = DEVICES.map(|n_gpus| {
        let mut trainer = trainer::<N>(n_gpus, learning_rate);
        (0..n_steps).map(|_| trainer.step(batch).unwrap()).collect::<Vec<f32>>()
    });
    for (found, n_gpus) in losses.iter().zip(DEVICES) {
        for (step, (found, expected)) in found.iter().zip(&losses[0]).enumerate() {
            // Sums have another order, and their last digits change the next updates.
            let is_close = (found - expected).abs() <= 2e-4 * expected.abs();
            assert!(is_close, "step {step} on {n_gpus} devices: {found}, not {expected}");
        }
    }
    losses[0].clone()
}

fn numbers(n: usize, seed: usize) -> Vec<f32> {
    let number = |it: usize| ((it + seed) * 7919 % 2003) as f32 / 1001.0 - 1.0;
    (0..n).map(|it| number(it * it + 31 * it)).collect()
}

fn tokens(n: usize) -> [Vec<f32>; 2] {
    [5, 900].map(|seed| numbers(n * WIDTH, seed))
}

/// The tokens of a group, and the places that an expert has for them.
#[derive(Clone, Copy)]
struct Queues {
    group: usize,
    capacity: usize,
}

/// Computes the mixture by loops over choices; returns its result, the load-balancing loss and the
/// number of choices that were dropped.
fn reference(x: &[f64], weights: &[Vec<f64>], queues: Queues) -> (Vec<f64>, f64, usize) {
    let [router, w1, w2] = [0, 1, 2].map(|it| &weights[it][..]);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let softmax = |scores: &[f64]| {
        let sum: f64 = scores.iter().map(|it| it.exp()).sum();
        scores.iter().map(|it| it.exp() / sum).collect::<Vec<f64>>()
    };
    let tokens: Vec<&[f64]> = x.chunks(WIDTH).collect();
    let scores: Vec<Vec<f64>> = tokens
        .iter()
        .map(|token| router.chunks(WIDTH).map(|row| dot(row, token)).collect())
        .collect();
    let best = |scores: &[f64]| {
        let mut order: Vec<usize> = (0..EXPERTS).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        order.truncate(CHOSEN);
        order
    };
    let mut loads = vec![[0; EXPERTS]; tokens.len().div_ceil(queues.group)];
    let (mut y, mut n_dropped) = (vec![0.0; x.len()], 0);
    for choice in 0..CHOSEN {
        for (at, token) in tokens.iter().enumerate() {
            let chosen = best(&scores[at]);
            let gates = softmax(&chosen.iter().map(|it| scores[at][*it]).collect::<Vec<_>>());
            let expert = chosen[choice];
            let load = &mut loads[at / queues.group][expert];
            *load += 1;
            if *load > queues.capacity {
                n_dropped += 1;
                continue;
            }
            let rows = w1.chunks(WIDTH).skip(expert * HIDDEN).take(HIDDEN);
            let sums: Vec<f64> = rows.map(|row| dot(row, token)).collect();
            let hidden = Tensor::new([HIDDEN], &sums).gelu().to_vec();
            let rows = w2.chunks(HIDDEN).skip(expert * WIDTH).take(WIDTH);
            for (y, row) in y[at * WIDTH..].iter_mut().zip(rows) {
                *y += gates[choice] * dot(row, &hidden);
            }
        }
    }
    let n = tokens.len() as f64;
    let balance = (0..EXPERTS).map(|expert| {
        let share = scores.iter().filter(|it| best(it)[0] == expert).count() as f64 / n;
        share * scores.iter().map(|it| softmax(it)[expert]).sum::<f64>() / n
    });
    let balance = balance.sum::<f64>() * EXPERTS as f64;
    (y, balance, n_dropped)
}

/// Compares a model of `n` tokens on 8 devices with the loops and with the eager function.
fn check_experts<N: Network>(n: usize, queues: Queues, loss: fn([Tensor; 2]) -> Tensor) {
    let mut trainer = trainer::<N>(8, 0.1);
    let [x, y] = tokens(n);
    let evaluation = trainer.evaluate(&[View::F32(&x), View::F32(&y)]).unwrap();
    let parameters = trainer.parameters().unwrap();
    let names: Vec<&str> = parameters.iter().map(|it| it.0.as_str()).collect();
    let path = "mixture_of_experts";
    let expected = ["linear_without_bias.weight", "w1", "w2"].map(|it| format!("{path}.{it}"));
    assert_eq!(names, expected);
    eager::scope(|| {
        let wide = |it: &[f32]| it.iter().map(|it| f64::from(*it)).collect::<Vec<_>>();
        let weights: Vec<Vec<f64>> = parameters.iter().map(|it| wide(&it.1.data)).collect();
        let (found, balance, n_dropped) = reference(&wide(&x), &weights, queues);
        assert!(n_dropped > 0 && n_dropped < n, "{n_dropped} of the choices were dropped");
        let close = |found: f32, expected: f64| (f64::from(found) - expected).abs() < 1e-5;
        let outputs = &evaluation.outputs;
        assert!(outputs[0].data.iter().zip(&found).all(|(found, it)| close(*found, *it)));
        assert!(close(outputs[1].data[0], balance), "{:?}, not {balance}", outputs[1].data);
        let values: Vec<Tensor> = parameters.iter().map(|it| tensor(&it.1)).collect();
        let inputs = [&x, &y].map(|it| Tensor::new([n, WIDTH], &wide(it)));
        let loss = eager::with_parameters(&values, || loss(inputs).item());
        assert!(close(evaluation.loss, loss));
    });
}

#[test]
fn experts_compute_what_loops_over_choices_compute() {
    let queues = Queues { group: 48, capacity: 10 };
    check_experts::<routed::Network>(48, queues, |[x, y]| routed::forward(x, y).0);
    check_experts::<grouped::Network>(192, queues, |[x, y]| grouped::forward(x, y).0);
}

#[test]
fn experts_have_32_choices_of_a_group_by_default() {
    let queues = Queues { group: 128, capacity: 26 };
    check_experts::<many::Network>(1024, queues, |[x, y]| many::forward(x, y).0);
}

#[test]
fn gradients_of_experts_are_finite_differences() {
    let [x, y] = tokens(192);
    let wide = |it: &[f32]| it.iter().map(|it| f64::from(*it)).collect::<Vec<_>>();
    let mut trainer = trainer::<grouped::Network>(8, 1.0);
    let before = trainer.parameters().unwrap();
    trainer.step(&[View::F32(&x), View::F32(&y)]).unwrap();
    let after = trainer.parameters().unwrap();
    // The eager loss, with one element of one parameter changed.
    let loss = |number: usize, element: usize, distance: f64| {
        eager::scope(|| {
            let values = before.iter().enumerate().map(|(at, it)| {
                let mut data = wide(&it.1.data);
                if at == number {
                    data[element] += distance;
                }
                Tensor::new(it.1.shape.clone(), &data)
            });
            let inputs = [&x, &y].map(|it| Tensor::new([192, WIDTH], &wide(it)));
            let values: Vec<Tensor> = values.collect();
            eager::with_parameters(&values, || grouped::forward(inputs[0], inputs[1]).0.item())
        })
    };
    for (number, (before_it, after)) in before.iter().zip(&after).enumerate() {
        let mut greatest = 0.0_f64;
        for element in (0..before_it.1.data.len()).step_by(61) {
            let found = f64::from(before_it.1.data[element] - after.1.data[element]);
            let expected = (loss(number, element, 1e-5) - loss(number, element, -1e-5)) / 2e-5;
            let name = &before_it.0;
            // The difference of two parameters in `f32` has an error of 3e-8.
            assert!((found - expected).abs() < 2e-7, "{name} {element}: {found}, {expected}");
            greatest = greatest.max(expected.abs());
        }
        assert!(greatest > 1e-4, "{} has gradients of at most {greatest}", before_it.0);
    }
}

#[test]
fn experts_learn_the_same_on_any_number_of_devices() {
    let [x, y] = tokens(48);
    let losses = check_losses::<routed::Network>(&[View::F32(&x), View::F32(&y)], 4.0, 30);
    assert!(losses[29] < 0.95 * losses[0], "{losses:?}");
    let [x, y] = tokens(192);
    let losses = check_losses::<grouped::Network>(&[View::F32(&x), View::F32(&y)], 4.0, 20);
    assert!(losses[19] < losses[0], "{losses:?}");
}

#[test]
fn plans_split_experts_among_devices() {
    let compiled = compiled::<few_in_groups::Network>(8);
    let parameters = &compiled.program.tables.parameters;
    for name in ["mixture_of_experts.w1", "mixture_of_experts.w2"] {
        let parameter = parameters.iter().find(|it| it.name == name).unwrap();
        let is_split = |axis: usize| parameter.tile.tiling.on(axis) == Placement::Split(0);
        // 8 devices are 3 axes of 2, and each device has one of the 8 experts.
        assert!((0..3).all(is_split), "{name}: {:?}", parameter.tile);
    }
}

#[test]
fn groups_exchange_tokens_instead_of_sums() {
    check_megabytes::<few_in_one::Network>([125.8, 578.5, 2684.1]);
    check_megabytes::<few_in_groups::Network>([85.2, 234.0, 1423.2]);
    check_megabytes::<many_in_one::Network>([172.6, 923.4, 3670.9]);
    check_megabytes::<many_in_groups::Network>([154.2, 413.3, 1268.0]);
    check_megabytes::<many_in_32::Network>([152.2, 413.3, 718.4]);
}

/// Compares the bytes of plans for 2, 8 and 64 GPUs.
fn check_megabytes<N: Network>(expected: [f64; 3]) {
    let megabytes = |n_gpus| compiled::<N>(n_gpus).report.bytes_total as f64 / 1e6;
    let found = [2, 8, 64].map(|it| (megabytes(it) * 10.0).round() / 10.0);
    assert_eq!(found, expected);
}

/// Returns rows of bits, each one of four patterns.
fn patterns() -> Vec<f32> {
    let bit = |it: usize| u8::from((it % 32 * (3 + 2 * (it / 32 % 4)) / 7).is_multiple_of(2));
    (0..24 * 32).map(|it| f32::from(bit(it))).collect()
}

#[test]
fn variational_autoencoders_learn_the_same_on_any_number_of_devices() {
    let x = patterns();
    let losses = check_losses::<variational::Network>(&[View::F32(&x)], 0.01, 60);
    let mean = |it: &[f32]| it.iter().sum::<f32>() / it.len() as f32;
    let [first, last] = [mean(&losses[..10]), mean(&losses[50..])];
    assert!(last < 0.7 * first, "from {first} to {last}");
}

#[test]
fn noise_differs_from_step_to_step_and_by_seed() {
    let x = patterns();
    let losses = |seed| {
        // The parameters of one seed, and the noise of each.
        let parameters = trainer::<variational::Network>(2, 0.0).parameters().unwrap();
        let config = Config { learning_rate: 0.0, seed, ..Config::default() };
        let program = Arc::new(compiled::<variational::Network>(2).program);
        let mut trainer = Trainer::new_shared(program, config).unwrap();
        trainer.set_parameters(&parameters).unwrap();
        let batch = [View::F32(&x)];
        let evaluated = [0; 2].map(|_| trainer.evaluate(&batch).unwrap().loss);
        assert_eq!(evaluated[0], evaluated[1]);
        let stepped = [0; 2].map(|_| trainer.step(&batch).unwrap());
        (evaluated[0], stepped)
    };
    let (one, other) = (losses(1), losses(2));
    assert_eq!(one.0, other.0, "evaluations have no noise");
    let all = [one.1, other.1].concat();
    let is_new = |it: usize| all[..it].iter().all(|earlier| *earlier != all[it]);
    assert!((0..4).all(is_new), "{all:?}");
}

#[test]
fn indices_beyond_the_line_are_an_error() {
    let mut trainer = chosen::Trainer::new(Config::default()).unwrap();
    trainer.step(&chosen::Batch { index: &[0, 5, 1, 2, 3, 4, 5, 5] }).unwrap();
    let error = trainer.step(&chosen::Batch { index: &[0, 6, 1, 2, 3, 4, 5, 5] }).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("index") && message.contains('6'), "{message}");
}
