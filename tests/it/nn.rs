//! The layers of `soybean::nn`: names, shapes and initial values of their weights, and training
//! steps against the same functions in ordinary Rust.

use crate::support::arrays::tensor;
use soybean::{
    Config,
    eager::{self, Tensor},
};

/// Every layer once.
#[soybean::model(gpus = 4)]
mod all {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(
        images: Tensor<f32, 4, 6, 8, 8>,
        letters: Tensor<i32, 4, 10>,
    ) -> (Tensor, Tensor) {
        let volumes = images.reshape([4, 2, 3, 8, 8]);
        let window = nn::Window { kernel: 3, stride: 1, padding: 1 };
        let images = nn::conv3d(volumes, 2, window).reshape([4, 6, 8, 8]);
        let mut h = nn::conv2d(images, 8, nn::Window { kernel: 3, stride: 1, padding: 1 });
        h = nn::basic_block(h, nn::BasicBlock { out_channels: 8, stride: 1 });
        h = nn::bottleneck(h, nn::Bottleneck { width: 4, stride: 2 });
        h = nn::group_norm(h, nn::GroupNorm { n_groups: 4 }).global_avg_pool2d();
        let mut words = nn::embedding(letters, nn::Embedding { vocabulary: 12, width: 16 });
        words = nn::transformer_block(
            words,
            nn::TransformerBlock { n_heads: 2, mask: "causal", p: 0.25 },
        );
        words = nn::conv1d(
            nn::rms_norm(words).permute([0, 2, 1]),
            8,
            nn::Window { kernel: 3, stride: 2, padding: 1 },
        )
        .mean(2);
        let both = nn::linear_without_bias(concat([h, words], 1), 5);
        (both.square().mean(..), both)
    }
}

const BATCHES: [usize; 2] = [4 * 6 * 64, 40];

fn batch() -> (Vec<f32>, Vec<i32>) {
    let number = |it: usize| (it * 7919 % 2003) as f32 / 1001.0 - 1.0;
    let letter = |it: usize| i32::try_from(it * 5 % 12).unwrap();
    ((0..BATCHES[0]).map(number).collect(), (0..BATCHES[1]).map(letter).collect())
}

#[test]
fn weights_are_named_and_shaped_as_in_pytorch() {
    let mut trainer = all::Trainer::new(Config::default()).unwrap();
    let found: Vec<String> = trainer
        .parameters()
        .unwrap()
        .iter()
        .map(|(name, array)| format!("{name} {:?}", array.shape))
        .collect();
    let norm = |path: &str, n: usize| {
        ["weight", "bias", "running_mean", "running_var"]
            .map(|it| format!("{path}.batch_norm.{it} [{n}]"))
    };
    let mut expected = [
        "conv3d.weight [2, 2, 3, 3, 3]",
        "conv3d.bias [2]",
        "conv2d.weight [8, 6, 3, 3]",
        "conv2d.bias [8]",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut conv = |path: &str, [filters, channels, kernel]: [usize; 3]| {
        let shape = [filters, channels, kernel, kernel];
        expected.push(format!("{path}.conv2d_without_bias.weight {shape:?}"));
        expected.extend(norm(path, filters));
    };
    conv("basic_block.conv_norm_relu.conv_norm", [8, 8, 3]);
    conv("basic_block.conv_norm", [8, 8, 3]);
    conv("bottleneck.conv_norm_relu.0.conv_norm", [4, 8, 1]);
    conv("bottleneck.conv_norm_relu.1.conv_norm", [4, 4, 3]);
    conv("bottleneck.conv_norm", [16, 4, 1]);
    conv("bottleneck.shortcut.conv_norm", [16, 8, 1]);
    expected.extend(["group_norm.weight [16]", "group_norm.bias [16]"].map(str::to_owned));
    expected.push("embedding.weight [12, 16]".to_owned());
    let mut pair = |path: &str, weight: &[usize]| {
        expected.push(format!("{path}.weight {weight:?}"));
        expected.push(format!("{path}.bias {:?}", &weight[..1]));
    };
    pair("transformer_block.layer_norm.0", &[16]);
    for linear in 0..4 {
        pair(&format!("transformer_block.multi_head_attention.linear.{linear}"), &[16, 16]);
    }
    pair("transformer_block.layer_norm.1", &[16]);
    pair("transformer_block.feed_forward.linear.0", &[64, 16]);
    pair("transformer_block.feed_forward.linear.1", &[16, 64]);
    expected.push("rms_norm.weight [16]".to_owned());
    expected.push("conv1d.weight [8, 16, 3]".to_owned());
    expected.push("conv1d.bias [8]".to_owned());
    expected.push("linear_without_bias.weight [5, 24]".to_owned());
    assert_eq!(found, expected);
}

#[test]
fn weights_begin_as_in_pytorch() {
    let mut trainer = all::Trainer::new(Config::default()).unwrap();
    let parameters = trainer.parameters().unwrap();
    let data = |name: &str| &parameters.iter().find(|it| it.0 == name).unwrap().1.data;
    // Uniform within 1 / sqrt(fan_in): the largest of many numbers is close to the bound.
    for (name, fan_in) in
        [("conv3d.weight", 54.0), ("conv2d.weight", 54.0), ("linear_without_bias.weight", 24.0)]
    {
        let bound = 1.0 / f32::sqrt(fan_in);
        let largest = data(name).iter().fold(0.0, |most: f32, it| most.max(it.abs()));
        assert!((0.9 * bound..=bound).contains(&largest), "{name}: {largest}, bound {bound}");
    }
    let is_all = |name: &str, value: f32| data(name).iter().all(|it| *it == value);
    assert!(is_all("basic_block.conv_norm.batch_norm.running_var", 1.0));
    assert!(is_all("basic_block.conv_norm.batch_norm.bias", 0.0));
    assert!(is_all("transformer_block.layer_norm.0.weight", 1.0));
}

#[test]
fn layers_compute_what_they_say() {
    let mut trainer = all::Trainer::new(Config::default()).unwrap();
    let (images, letters) = batch();
    let parameters = trainer.parameters().unwrap();
    let expected = |step: Option<u64>| {
        eager::scope(|| {
            let values: Vec<Tensor> = parameters.iter().map(|it| tensor(&it.1)).collect();
            let pixels: Vec<f64> = images.iter().map(|it| f64::from(*it)).collect();
            let words: Vec<f64> = letters.iter().map(|it| f64::from(*it)).collect();
            let (x, y) = (Tensor::new([4, 6, 8, 8], &pixels), Tensor::new([4, 10], &words));
            let loss = || eager::with_parameters(&values, || all::forward(x, y).0.item());
            match step {
                Some(step) => eager::in_training(0, step, loss),
                None => loss(),
            }
        })
    };
    let batch = all::Batch { images: &images, letters: &letters };
    let close = |found: f32, expected: f64| {
        assert!((f64::from(found) - expected).abs() < 1e-5 * expected, "{found}, not {expected}");
    };
    close(trainer.evaluate(&batch).unwrap().loss, expected(None));
    close(trainer.step(&batch).unwrap(), expected(Some(1)));
}
