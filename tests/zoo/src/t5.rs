//! T5: an encoder and a decoder that reads its result. Source: Raffel et al. 2020.

use soybean_compiler::{Argument, Value};
use soybean_plan::DType;

use crate::{Layers, Model, layers::list};

const BATCH: usize = 128;
const WIDTH: usize = 768;
const HEADS: [usize; 2] = [12, 64];
const HIDDEN: usize = 3072;
const N_BLOCKS: usize = 12;
const N_WORDS: usize = 32_128;
/// Ranges of distances between a query and a key, each with a bias of scores.
const N_DISTANCES: usize = 32;
/// The tokens of a text whose spans are masked. Source: section 3.1.4.
const TOKENS: usize = 512;
/// The tokens of the masked spans. Source: as above.
const TARGETS: usize = 114;

/// T5-base with the tokens of its pre-training. The ranges of distances are inputs.
pub(crate) fn t5_base() -> Model {
    let mut it = Layers::new(DType::I32, &[BATCH, TOKENS], false);
    let words = it.parameter("words", &[N_WORDS, WIDTH]);
    let mut it = it.apply("embedding", std::slice::from_ref(&words)).ended().dropout();
    let options = distances(&mut it, "none", TOKENS);
    for _ in 0..N_BLOCKS {
        it = it.residual(|it| it.rms_norm().t5_attention(None, &options).dropout(), |it| it);
        it = it.residual(|it| it.rms_norm().t5_feed_forward(), |it| it);
    }
    let mut it = it.rms_norm().dropout();
    let memory = it.here();
    let targets = it.input("targets", DType::I32, &[BATCH, TARGETS]);
    let mut it = it.call("embedding", &[targets, words.clone()]).dropout();
    let options = distances(&mut it, "causal", TARGETS);
    let crossed = options_with(Argument::Float(0.0), "none");
    for _ in 0..N_BLOCKS {
        it = it.residual(|it| it.rms_norm().t5_attention(None, &options).dropout(), |it| it);
        let layers = |it: Layers| it.rms_norm().t5_attention(Some(memory), &crossed).dropout();
        it = it.residual(layers, |it| it);
        it = it.residual(|it| it.rms_norm().t5_feed_forward(), |it| it);
    }
    let mut it = it.rms_norm().dropout();
    // Logits of tied words are scaled: section 2.1, and Mesh TensorFlow.
    let scale = Argument::Float(1.0 / (WIDTH as f64).sqrt());
    let columns = Argument::Tensor(it.value("transpose", &[words]));
    it.apply("mul", &[scale]).apply("matmul", &[columns]).classified(&[BATCH, TARGETS])
}

/// Returns the options of attention with a bias for each head and range of distances, which all
/// blocks of a stack share.
fn distances(it: &mut Layers, mask: &str, tokens: usize) -> [Argument; 5] {
    let ranges = it.input(&format!("distances_{mask}"), DType::I32, &[tokens, tokens]);
    let biases = it.parameter(&format!("biases_{mask}"), &[N_DISTANCES, HEADS[0]]);
    let bias = Argument::Tensor(it.value("embedding", &[ranges, biases]));
    let bias = it.value("permute", &[bias, list(&[2, 0, 1])]);
    options_with(Argument::Tensor(bias), mask)
}

/// Returns the options of attention with a bias: mask, segments, bias, scale and dropout.
fn options_with(bias: Argument, mask: &str) -> [Argument; 5] {
    let mask = Argument::Text(mask.to_owned());
    [mask, Argument::All, bias, Argument::Float(1.0), Argument::Float(0.0)]
}

impl Layers {
    /// Adds attention to `memory`, or else to the last layer's output.
    fn t5_attention(self, memory: Option<Value>, options: &[Argument; 5]) -> Self {
        let memory = memory.unwrap_or(self.here());
        let (it, operands) = self.projected(memory, HEADS, HEADS);
        it.attended(operands, "attention_with", options).dense(WIDTH)
    }

    fn t5_feed_forward(self) -> Self {
        self.dense(HIDDEN).apply("relu", &[]).dropout().dense(WIDTH).dropout()
    }
}
