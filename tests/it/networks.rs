//! The networks of the examples with fewer channels and smaller images: eight devices give the
//! losses of one device, and move the predicted bytes.

use soybean::{Config, Network, Trainer, plan::Plan};

const STEPS: usize = 5;
/// The gradient of a fresh ResNet-50 is about a thousand times as long as its weights, and rounding
/// decides the sign of some ReLU inputs. Its steps are short, so that losses can be compared.
const LEARNING_RATES: [(&str, f32); 4] =
    [("alexnet", 0.01), ("vgg16", 0.01), ("resnet50", 3e-8), ("gpt", 0.01)];

/// The networks with their losses.
mod losses {
    use soybean::prelude::*;

    use crate::example_networks::{
        alexnet::{AlexNet, alexnet},
        gpt::{Gpt, gpt},
        resnet::{ResNet, resnet50},
        vgg16::{Vgg16, vgg16},
    };

    #[soybean::layer]
    pub(crate) fn of_alexnet(x: Tensor, y: Tensor) -> Tensor {
        let sizes = AlexNet { width: 8, hidden: 32, n_classes: 16 };
        alexnet(x, sizes).cross_entropy(y)
    }

    #[soybean::layer]
    pub(crate) fn of_vgg16(x: Tensor, y: Tensor) -> Tensor {
        let sizes = Vgg16 { width: 8, hidden: 32, n_classes: 16 };
        vgg16(x, sizes).cross_entropy(y)
    }

    #[soybean::layer]
    pub(crate) fn of_resnet50(x: Tensor, y: Tensor) -> Tensor {
        resnet50(x, ResNet { width: 8, n_classes: 16 }).cross_entropy(y)
    }

    #[soybean::layer]
    pub(crate) fn of_gpt(x: Tensor, y: Tensor) -> Tensor {
        let sizes = Gpt { vocabulary: 24, width: 32, n_heads: 8, n_layers: 12, dropout: 0.1 };
        gpt(x, sizes).cross_entropy(y)
    }
}

macro_rules! networks {
    ($($network:ident: $loss:ident([$($x:tt)*], [$($y:tt)*]);)*) => {
        $(pub(crate) mod $network {
            networks!(@model one, 1, $loss, [$($x)*], [$($y)*]);
            networks!(@model eight, 8, $loss, [$($x)*], [$($y)*]);
        })*
    };
    (@model $name:ident, $gpus:literal, $loss:ident, [$($x:tt)*], [$($y:tt)*]) => {
        #[soybean::model(gpus = $gpus, optimizer = sgd(momentum = 0.9))]
        pub(crate) mod $name {
            use soybean::prelude::*;

            use crate::networks::losses::$loss;

            pub(crate) fn forward(x: Tensor<$($x)*>, y: Tensor<$($y)*>) -> Tensor {
                $loss(x, y)
            }
        }
    };
}

networks! {
    small_alexnet: of_alexnet([f32, 16, 3, 63, 63], [i32, 16]);
    small_vgg16: of_vgg16([f32, 16, 3, 32, 32], [i32, 16]);
    small_resnet50: of_resnet50([f32, 16, 3, 64, 64], [i32, 16]);
    small_gpt: of_gpt([i32, 8, 16], [i32, 8, 16]);
}

/// Returns pseudo-random numbers.
fn noise(n: usize, step: usize) -> impl Iterator<Item = usize> {
    (0..n).map(move |it| ((it + 1) * 7919 + step * 104_729) % 2003)
}

/// Returns the losses of some steps, and checks the moved bytes of each.
fn losses<N: Network>(name: &str, step: impl Fn(&mut Trainer<N>, usize) -> f32) -> Vec<f32> {
    let learning_rate = LEARNING_RATES.iter().find(|it| it.0 == name).unwrap().1;
    let config = Config { learning_rate, ..Config::default() };
    let mut trainer = Trainer::<N>::new(config).unwrap();
    let mut checked = |at: usize| {
        let loss = step(&mut trainer, at);
        assert_eq!(trainer.moved_bytes(), N::PLAN.bytes_total);
        loss
    };
    (0..STEPS).map(&mut checked).collect()
}

fn check(name: &str, alone: &[f32], together: &[f32], plan: &Plan) {
    assert!(alone.iter().all(|it| it.is_finite()), "{name}: {alone:?}");
    for (x, y) in alone.iter().zip(together) {
        assert!((x - y).abs() <= 1e-3 * x.abs(), "{name}: {alone:?} on one, {together:?} on eight");
    }
    assert_eq!(plan.n_gpus, 8, "{name}");
    assert!(plan.bytes_total > 0, "{name}");
}

macro_rules! of_images {
    ($name:literal, $network:ident, $side:literal) => {{
        let images = |step| noise(16 * 3 * $side * $side, step).map(|it| it as f32 / 1001.0 - 1.0);
        let labels = |step| noise(16, step).map(|it| i32::try_from(it % 16).unwrap());
        let alone = losses::<$network::one::Network>($name, |trainer, step| {
            let (x, y): (Vec<f32>, Vec<i32>) = (images(step).collect(), labels(step).collect());
            trainer.step(&$network::one::Batch { x: &x, y: &y }).unwrap()
        });
        let together = losses::<$network::eight::Network>($name, |trainer, step| {
            let (x, y): (Vec<f32>, Vec<i32>) = (images(step).collect(), labels(step).collect());
            trainer.step(&$network::eight::Batch { x: &x, y: &y }).unwrap()
        });
        check($name, &alone, &together, &$network::eight::Trainer::PLAN);
    }};
}

#[test]
fn alexnet_learns_the_same() {
    of_images!("alexnet", small_alexnet, 63);
}

#[test]
fn vgg16_learns_the_same() {
    of_images!("vgg16", small_vgg16, 32);
}

#[test]
fn resnet50_learns_the_same() {
    of_images!("resnet50", small_resnet50, 64);
}

#[test]
fn gpt_of_twelve_layers_learns_the_same() {
    let tokens = |step| -> Vec<i32> {
        noise(8 * 16, step).map(|it| i32::try_from(it % 24).unwrap()).collect()
    };
    let alone = losses::<small_gpt::one::Network>("gpt", |trainer, step| {
        let batch = small_gpt::one::Batch { x: &tokens(step), y: &tokens(step + 1) };
        trainer.step(&batch).unwrap()
    });
    let together = losses::<small_gpt::eight::Network>("gpt", |trainer, step| {
        let batch = small_gpt::eight::Batch { x: &tokens(step), y: &tokens(step + 1) };
        trainer.step(&batch).unwrap()
    });
    check("gpt", &alone, &together, &small_gpt::eight::Trainer::PLAN);
}
