//! The denoising U-Net of Stable Diffusion 1: residual convolutions, and attention to pixels and to
//! a text. Source: Rombach et al. 2022, with the widths of the published configuration.

use soybean_compiler::{Argument, Value};
use soybean_plan::DType;

use crate::{
    Layers, Model,
    layers::{integer, list},
    transformer::SCALED,
};

const N_HEADS: usize = 8;
/// The features of the vectors that stand for steps of time.
const TIME: usize = 1280;

/// The inputs that all blocks read.
struct Conditions {
    /// Features of the step of time, `[batch, TIME]`.
    time: Value,
    /// Features of the text, `[batch, 77, 768]`.
    text: Value,
}

/// The network for latent images `[batch, 4, side, side]`. It predicts their noise.
pub(crate) fn diffusion_unet(batch: usize, side: usize) -> Model {
    const LEVELS: [usize; 4] = [320, 640, 1280, 1280];
    let is_attentive = |level: usize| level < 3;
    let mut it = Layers::new(DType::F32, &[batch, 4, side, side], true);
    let conditions = conditions(&mut it, batch);
    it = it.linear_conv(LEVELS[0], 3, 1, 1);
    let mut skips = vec![it.here()];
    for (level, &channels) in LEVELS.iter().enumerate() {
        for _ in 0..2 {
            it = it.block(channels, is_attentive(level), &conditions);
            skips.push(it.here());
        }
        if level + 1 < LEVELS.len() {
            it = it.linear_conv(channels, 3, 2, 1);
            skips.push(it.here());
        }
    }
    it = it.block(LEVELS[3], true, &conditions).denoised(LEVELS[3], conditions.time);
    for (level, &channels) in LEVELS.iter().enumerate().rev() {
        for _ in 0..3 {
            let skip = skips.pop().expect("each block on the way up has one on the way down");
            it = it.branches(&[&|it| it, &|it| it.at(skip)]);
            it = it.block(channels, is_attentive(level), &conditions);
        }
        if level > 0 {
            let side = 2 * it.shape()[2];
            let nearest = Argument::Text("nearest".to_owned());
            it = it.apply("interpolate", &[list(&[side, side]), nearest]);
            it = it.linear_conv(channels, 3, 1, 1);
        }
    }
    it = it.group_norm().apply("silu", &[]).linear_conv(4, 3, 1, 1);
    let (output, noise) = (it.here(), it.input("y", DType::F32, &[batch, 4, side, side]));
    it.apply("mse", &[noise]).finished(output)
}

fn conditions(it: &mut Layers, batch: usize) -> Conditions {
    let text = it.input("text", DType::F32, &[batch, 77, 768]);
    let Argument::Tensor(text) = text else { unreachable!("inputs are tensors") };
    // Sines and cosines of the step.
    let mut time = it.input("time", DType::F32, &[batch, 320]);
    for (name, extents) in [("time_in", [320, TIME]), ("time_out", [TIME, TIME])] {
        let weight = it.parameter(name, &extents);
        let product = it.value("matmul", &[time, weight]);
        time = Argument::Tensor(it.value("silu", &[Argument::Tensor(product)]));
    }
    let Argument::Tensor(time) = time else { unreachable!("results are tensors") };
    Conditions { time, text }
}

impl Layers {
    fn group_norm(mut self) -> Self {
        let n = self.shape()[1];
        let (scale, shift) = (self.parameter("scale", &[n]), self.parameter("shift", &[n]));
        self.apply("group_norm", &[integer(32), scale, shift, Argument::Float(1e-5)]).ended()
    }

    fn block(self, channels: usize, is_attentive: bool, conditions: &Conditions) -> Self {
        let it = self.denoised(channels, conditions.time);
        if is_attentive { it.attentive(conditions.text) } else { it }
    }

    /// Adds a residual block of two convolutions that also reads the step of time.
    fn denoised(self, channels: usize, time: Value) -> Self {
        let [batch, n, ..] = self.shape()[..] else { unreachable!("images have four dims") };
        let layers = |it: Self| {
            let it = it.group_norm().apply("silu", &[]).linear_conv(channels, 3, 1, 1);
            let image = it.here();
            let it = it.at(time).dense(channels);
            let it = it.apply("reshape", &[list(&[batch, channels, 1, 1])]);
            let shift = Argument::Tensor(it.here());
            let it = it.at(image).apply("add", &[shift]).group_norm().apply("silu", &[]);
            it.linear_conv(channels, 3, 1, 1)
        };
        let shortcut =
            |it: Self| if n == channels { it } else { it.linear_conv(channels, 1, 1, 0) };
        self.residual(layers, shortcut)
    }

    /// Adds a transformer block over pixels that also attends to the text.
    fn attentive(self, text: Value) -> Self {
        let [batch, channels, rows, columns] = self.shape()[..] else {
            unreachable!("images have four dims")
        };
        let heads = [N_HEADS, channels / N_HEADS];
        let layers = |it: Self| {
            it.group_norm()
                .linear_conv(channels, 1, 1, 0)
                .apply("reshape", &[list(&[batch, channels, rows * columns])])
                .apply("permute", &[list(&[0, 2, 1])])
                .residual(|it| it.layer_norm().attention(heads, false), |it| it)
                .residual(|it| it.layer_norm().attention_to(text, heads), |it| it)
                .residual(|it| it.layer_norm().gelu_gated(), |it| it)
                .apply("permute", &[list(&[0, 2, 1])])
                .apply("reshape", &[list(&[batch, channels, rows, columns])])
                .linear_conv(channels, 1, 1, 0)
        };
        self.residual(layers, |it| it)
    }

    fn attention_to(self, memory: Value, heads: [usize; 2]) -> Self {
        let features = self.shape()[2];
        let (it, operands) = self.projected(memory, heads, heads);
        it.attended(operands, SCALED, &[Argument::Boolean(false)]).dense(features)
    }

    /// Adds a feed-forward layer with GELU gates.
    fn gelu_gated(self) -> Self {
        let (source, features) = (self.here(), self.shape()[2]);
        let it = self.dense(4 * features).apply("gelu", &[]);
        let gate = Argument::Tensor(it.here());
        it.at(source).dense(4 * features).apply("mul", &[gate]).dense(features)
    }
}
