//! Training gives the same bits in every run and on any number of threads. The models are large
//! enough for threads to share sums.

use soybean::{Config, Device, Network, Trainer};

macro_rules! images {
    ($($name:ident on $gpus:literal,)*) => {
        $(#[soybean::model(gpus = $gpus, optimizer = sgd(momentum = 0.9))]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(
                x: Tensor<f32, 16, 3, 40, 40>,
                y: Tensor<i32, 16>,
            ) -> (Tensor, Tensor) {
                let mut h = nn::batch_norm(nn::conv2d(x, 6, nn::Window { kernel: 3, stride: 1, padding: 1 })).relu().max_pool2d(2, 2, 0);
                h = nn::conv2d(h, 16, nn::Window { kernel: 3, stride: 1, padding: 1 }).relu().max_pool2d(2, 2, 0).dropout(0.25);
                let logits = nn::linear(h.flatten(), 12);
                (logits.cross_entropy(y), logits)
            }
        })*
    };
}

images! {
    images1 on 1,
    images2 on 2,
    images4 on 4,
}

macro_rules! words {
    ($($name:ident on $gpus:literal,)*) => {
        $(#[soybean::model(gpus = $gpus, optimizer = adamw(), clip_norm = 1.0)]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(
                x: Tensor<i32, 1, 520>,
                y: Tensor<i32, 520>,
            ) -> (Tensor, Tensor) {
                let mut h = nn::embedding(x, nn::Embedding { vocabulary: 24, width: 16 });
                let block = nn::TransformerBlock { n_heads: 2, mask: "causal", p: 0.1 };
                h = nn::transformer_block(h, block);
                let logits = nn::linear(nn::layer_norm(h), 16).reshape([520, 16]);
                (logits.cross_entropy(y), logits)
            }
        })*
    };
}

words! {
    words1 on 1,
    words2 on 2,
    words4 on 4,
}

macro_rules! rows {
    ($($name:ident on $gpus:literal,)*) => {
        $(#[soybean::model(gpus = $gpus, optimizer = adam())]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(
                x: Tensor<f32, 2048, 30>,
                y: Tensor<i32, 2048>,
            ) -> (Tensor, Tensor) {
                let h = nn::linear(x, 68).tanh();
                let logits = nn::linear(h, 7);
                (logits.cross_entropy(y) + 0.01 * h.square().mean(..), logits)
            }
        })*
    };
}

rows! {
    rows1 on 1,
    rows2 on 2,
    rows4 on 4,
}

fn floats(n: usize) -> Vec<f32> {
    (0..n).map(|it| (it * 7919 % 2003) as f32 / 1001.0 - 1.0).collect()
}

fn labels(n: usize, n_classes: usize) -> Vec<i32> {
    (0..n).map(|it| i32::try_from(it * 31 % 1009 % n_classes).unwrap()).collect()
}

/// Returns the bits of losses, outputs and parameters of some steps with this many threads per
/// device.
fn bits<N: Network>(n_devices: usize, n_threads: usize, batch: &N::Batch<'_>) -> Vec<u32> {
    let (device, threads) = (Device::Cpu, Some(n_devices * n_threads));
    let config = Config { seed: 3, learning_rate: 0.05, device, threads, ..Config::default() };
    let mut trainer = Trainer::<N>::new(config).unwrap();
    let losses: Vec<f32> = (0..2).map(|_| trainer.step(batch).unwrap()).collect();
    let evaluation = trainer.evaluate(batch).unwrap();
    let parameters = trainer.parameters().unwrap();
    let numbers = losses.iter().chain([&evaluation.loss]);
    let numbers = numbers.chain(evaluation.outputs.iter().flat_map(|it| &it.data));
    let numbers = numbers.chain(parameters.iter().flat_map(|it| &it.1.data));
    numbers.map(|it| it.to_bits()).collect()
}

fn check<N: Network>(n_devices: usize, batch: &N::Batch<'_>) {
    let expected = bits::<N>(n_devices, 1, batch);
    for n_threads in [1, 2, 3, 5, 8].into_iter().skip(usize::from(n_devices > 1)) {
        let found = bits::<N>(n_devices, n_threads, batch);
        let place = expected.iter().zip(&found).position(|(expected, found)| expected != found);
        assert_eq!(place, None, "{n_devices} devices with {n_threads} threads each");
        assert_eq!(expected.len(), found.len());
    }
}

#[test]
fn convolutional_networks_have_the_same_bits_on_any_number_of_threads() {
    let (x, y) = (floats(16 * 3 * 1600), labels(16, 12));
    check::<images1::Network>(1, &images1::Batch { x: &x, y: &y });
    check::<images2::Network>(2, &images2::Batch { x: &x, y: &y });
    check::<images4::Network>(4, &images4::Batch { x: &x, y: &y });
}

#[test]
fn transformers_have_the_same_bits_on_any_number_of_threads() {
    let (x, y) = (labels(520, 24), labels(520, 15));
    check::<words1::Network>(1, &words1::Batch { x: &x, y: &y });
    check::<words2::Network>(2, &words2::Batch { x: &x, y: &y });
    check::<words4::Network>(4, &words4::Batch { x: &x, y: &y });
}

#[test]
fn perceptrons_have_the_same_bits_on_any_number_of_threads() {
    let (x, y) = (floats(2048 * 30), labels(2048, 7));
    check::<rows1::Network>(1, &rows1::Batch { x: &x, y: &y });
    check::<rows2::Network>(2, &rows2::Batch { x: &x, y: &y });
    check::<rows4::Network>(4, &rows4::Batch { x: &x, y: &y });
}
