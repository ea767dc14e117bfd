//! `check` on models whose updates take several steps, are clipped, exclude parameters or use a
//! loss scale.

use soybean_runtime::{Config, Device, View};

use super::{Sample, check_entries, check_on, difference};
use crate::{Network, command_line::CommandModel};

macro_rules! model {
    ($name:ident, $rate:literal, $($arguments:tt)*) => {
        #[soybean::model(gpus = 2, $($arguments)*)]
        mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(x: Tensor<f32, 8, 6>, y: Tensor<i32, 8>) -> Tensor {
                let h = nn::linear(x, 10).tanh().dropout($rate);
                nn::linear(h, 4).cross_entropy(y)
            }
        }
    };
}

model!(clipped, 0.0, optimizer = sgd(weight_decay = 0.1), clip_norm = 0.25);
model!(
    clipped_with_momentum,
    0.0,
    optimizer = sgd(momentum = 0.9, nesterov = true),
    clip_norm = 0.25
);
model!(accumulated, 0.5, accumulate = 3);
model!(spared, 0.0, optimizer = sgd(weight_decay = 0.1, no_decay = ["*.bias"]));
model!(
    everything,
    0.25,
    optimizer = adamw(weight_decay = 0.1, no_decay = ["*1*"]),
    clip_norm = 1e-2,
    accumulate = 2,
    ema = 0.9,
    non_finite = "scale",
);

model!(
    grouped,
    0.0,
    optimizer = adamw(weight_decay = 0.1),
    groups = [
        ("linear.0.*", sgd(weight_decay = 0.2), learning_rate_factor = 0.5),
        ("*.bias", sgd(momentum = 0.9, nesterov = true)),
    ],
);

model!(penalized, 0.0, optimizer = adam(weight_decay = 0.1, eps = 1e-2));
model!(root, 0.0, optimizer = rmsprop(weight_decay = 0.1, momentum = 0.9));
model!(centered, 0.0, optimizer = rmsprop(centered = true));
model!(sums, 0.0, optimizer = adagrad());
model!(signs, 0.0, optimizer = lion(weight_decay = 0.1));
model!(factored, 0.0, optimizer = adafactor());
model!(kept, 0.25, optimizer = gradients(), clip_norm = 0.05);

/// Its entries train parameters of their own, and use those of the other.
#[soybean::model(
    gpus = 2,
    optimizer = sgd(),
    groups = [("critic.*", adam())],
    entries = (discriminator(freeze = ["maker.*"]), generator(freeze = ["critic.*"])),
)]
mod gan {
    use soybean::{nn, prelude::*};

    fn maker(z: Tensor) -> Tensor {
        nn::linear(z, 6)
    }

    fn critic(x: Tensor) -> Tensor {
        nn::linear(nn::linear(x, 8).tanh().dropout(0.25), 1)
    }

    pub(crate) fn discriminator(real: Tensor<f32, 4, 6>, z: Tensor<f32, 4, 2>) -> Tensor {
        let scores = critic(concat([real, maker(z)], 0));
        let (good, bad) = (scores.slice(0, 0, 4), scores.slice(0, 4, 8));
        (-good).softplus().mean(..) + bad.softplus().mean(..)
    }

    pub(crate) fn generator(z: Tensor<f32, 4, 2>) -> (Tensor, Tensor) {
        let made = maker(z);
        ((-critic(made)).softplus().mean(..), made)
    }
}

#[test]
fn each_entry_is_checked_on_random_inputs() {
    let config = Config { seed: 5, device: Device::Cpu, ..Config::default() };
    let mut output = Vec::new();
    let outcome = check_entries(&CommandModel::of::<gan::Network>(), &config, &mut output);
    let text = String::from_utf8(output).unwrap();
    assert!(outcome.is_ok(), "{text}");
    for (what, found) in [
        ("loss of a training step by `discriminator`", ""),
        ("first update of `critic.*` by `discriminator` 32 elements: ", "adam of the gradient"),
        ("output `made` by `generator`", "24 elements"),
        ("first update by `generator` ", "sgd of the gradient"),
    ] {
        assert!(text.lines().any(|it| it.contains(what) && it.contains(found)), "{what}: {text}");
    }
    assert!(!text.contains("first update by `discriminator`"), "the maker is frozen: {text}");
    assert!(!text.contains("`critic.*` by `generator`"), "the critic is frozen: {text}");
}

fn check<N: Network>(detail: &str) {
    let x: Vec<f32> = (0..48).map(|it| ((it * 37) % 23) as f32 / 11.0 - 1.0).collect();
    let y: Vec<i32> = (0..8).map(|it| it * 3 % 4).collect();
    let model = CommandModel::of::<N>();
    let config = Config { seed: 5, device: Device::Cpu, ..Config::default() };
    let mut output = Vec::new();
    let outcome = check_on(&model, &config, &[View::F32(&x), View::I32(&y)], &mut output);
    let text = String::from_utf8(output).unwrap();
    assert!(outcome.is_ok() && text.contains(detail), "{text}");
}

#[test]
fn first_updates_are_those_of_the_optimizer() {
    check::<clipped::Network>("sgd of the gradient, clipped to");
    check::<clipped_with_momentum::Network>("sgd of the gradient, clipped to");
    check::<accumulated::Network>("sgd of the gradient, largest");
    check::<spared::Network>("sgd of the gradient");
    check::<grouped::Network>("first update of `linear.0.*`");
    check::<grouped::Network>("sgd of the gradient");
    check::<grouped::Network>("first update of `*.bias`");
    check::<kept::Network>("gradients of the gradient, clipped to");
    check::<everything::Network>("adamw of the gradient, clipped to");
    check::<penalized::Network>("adam of the gradient");
    check::<root::Network>("rmsprop of the gradient");
    check::<centered::Network>("rmsprop of the gradient");
    check::<sums::Network>("adagrad of the gradient");
    check::<signs::Network>("lion of the gradient");
    check::<factored::Network>("adafactor of the gradient");
}

#[test]
fn other_first_updates_fail() {
    let sample = |value, update, slope| Sample { parameter: 0, value, update, slope };
    let check = |samples: &[Sample], expected: fn((f64, f64)) -> Option<f64>| {
        difference(&samples.iter().collect::<Vec<_>>(), 1e-3, |_, it| expected(it))
    };
    let gradient: fn((f64, f64)) -> Option<f64> = |it| Some(it.1);
    assert!(check(&[sample(1.0, 0.5, 0.5), sample(2.0, -0.1, -0.1)], gradient) < 1e-9);
    assert!(check(&[sample(1.0, 0.5, 0.5), sample(2.0, -0.1, 0.1)], gradient) > 0.1);
    assert!(check(&[sample(1.0, 0.25, 0.5), sample(2.0, 0.1, 0.1)], gradient) > 0.1);
    let sign: fn((f64, f64)) -> Option<f64> = |it| Some(it.1.signum());
    // Rounding decides the sign of the last one.
    assert!(check(&[sample(1.0, 1.0, 0.5), sample(2.0, -1.0, 1e-5)], sign) < 1e-9);
    assert!(check(&[sample(1.0, 1.0, 0.5), sample(2.0, -1.0, 1e-2)], sign) > 0.1);
    let unknown: fn((f64, f64)) -> Option<f64> = |_| None;
    assert!(check(&[sample(1.0, 7.0, 0.5), sample(2.0, -0.1, -0.1)], unknown) < 1e-9);
    assert!(check(&[sample(1.0, 7.0, 0.5), sample(2.0, 0.1, -0.1)], unknown) > 0.1);
}
