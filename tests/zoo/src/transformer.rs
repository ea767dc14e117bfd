//! Transformers of any size.

use soybean_compiler::{Argument, Value};
use soybean_plan::DType;

use crate::{
    Layers, Model,
    layers::{integer, list},
};

/// The sizes of a transformer.
#[derive(Clone, Copy, Debug)]
pub struct Transformer {
    /// Texts in a batch.
    pub batch: usize,
    /// The length of each text.
    pub tokens: usize,
    /// Features of each token.
    pub width: usize,
    /// Heads of attention, which divide the features.
    pub n_heads: usize,
    /// Blocks, each of attention and a perceptron.
    pub n_blocks: usize,
    /// The size of the vocabulary.
    pub n_words: usize,
}

/// The sizes of GPT-2 small, with a multiple of 128 words. Source: Radford et al. 2019.
pub const GPT: Transformer =
    Transformer { batch: 16, tokens: 1024, width: 768, n_heads: 12, n_blocks: 12, n_words: 50_304 };

/// The operator of attention to all keys, or to those before the query.
pub(crate) const SCALED: &str = "scaled_dot_product_attention";

impl Transformer {
    /// Returns a pre-norm decoder that predicts the next tokens.
    #[must_use]
    pub fn decoder(&self) -> Model {
        self.decoder_with(Layers::feed_forward)
    }

    /// Returns the same decoder with another number of heads, as wide as those of this one.
    #[must_use]
    pub fn decoder_with_heads(&self, n_heads: usize) -> Model {
        self.decoder_of(n_heads, Layers::attention, Layers::feed_forward)
    }

    /// Returns the same decoder with one product for queries, keys and values, of which they are
    /// slices.
    #[must_use]
    pub fn decoder_with_fused_attention(&self) -> Model {
        self.decoder_of(self.n_heads, Layers::fused_attention, Layers::feed_forward)
    }

    /// Returns the same decoder, in which each query sees this many keys: its own and the ones just
    /// before it.
    #[must_use]
    pub fn decoder_with_window(&self, window: usize) -> Model {
        let attention = |it: Layers, heads, _| it.window_attention(heads, window);
        self.decoder_of(self.n_heads, attention, Layers::feed_forward)
    }

    /// Returns a decoder whose blocks have these layers instead of perceptrons.
    pub(crate) fn decoder_with(&self, layers: impl Fn(Layers) -> Layers) -> Model {
        self.decoder_of(self.n_heads, Layers::attention, layers)
    }

    fn decoder_of(
        &self,
        n_heads: usize,
        attention: impl Fn(Layers, [usize; 2], bool) -> Layers,
        layers: impl Fn(Layers) -> Layers,
    ) -> Model {
        let heads = [n_heads, self.width / self.n_heads];
        let mut it = self.embedded();
        for _ in 0..self.n_blocks {
            let attention = |it: Layers| attention(it.layer_norm(), heads, true).dropout();
            it = it.residual(attention, |it| it);
            it = it.residual(|it| layers(it.layer_norm()).dropout(), |it| it);
        }
        it.layer_norm().dense(self.n_words).classified(&[self.batch, self.tokens])
    }

    /// Returns a post-norm encoder that classifies texts. Source: Vaswani et al. 2017.
    #[must_use]
    pub fn encoder(&self, n_classes: usize) -> Model {
        let heads = [self.n_heads, self.width / self.n_heads];
        let mut it = self.embedded();
        for _ in 0..self.n_blocks {
            let attention = |it: Layers| it.attention(heads, false).dropout();
            it = it.residual(attention, |it| it).layer_norm();
            it = it.residual(|it| it.feed_forward().dropout(), |it| it).layer_norm();
        }
        it.apply("mean", &[integer(1)]).dense(n_classes).classified(&[self.batch])
    }

    fn embedded(&self) -> Layers {
        Layers::new(DType::I32, &[self.batch, self.tokens], true)
            .with_parameter("embedding", "words", &[self.n_words, self.width])
            .with_parameter("add", "places", &[self.tokens, self.width])
            .dropout()
    }
}

impl Layers {
    /// Changes `[batch, tokens, width]` to `[batch, heads, tokens, head width]`.
    fn heads(self, [n_heads, width]: [usize; 2]) -> Self {
        let shape = self.shape();
        self.apply("reshape", &[list(&[shape[0], shape[1], n_heads, width])])
            .apply("permute", &[list(&[0, 2, 1, 3])])
    }

    /// Adds dense layers for the queries of the last layer's output and for the keys and values of
    /// `memory`. Heads of keys and values may be fewer.
    pub(crate) fn projected(
        self,
        memory: Value,
        queries: [usize; 2],
        keys: [usize; 2],
    ) -> (Self, [Value; 3]) {
        let it = self.dense(queries[0] * queries[1]).heads(queries);
        let query = it.here();
        let it = it.at(memory).dense(keys[0] * keys[1]).heads(keys);
        let key = it.here();
        let it = it.at(memory).dense(keys[0] * keys[1]).heads(keys);
        let value = it.here();
        (it, [query, key, value])
    }

    pub(crate) fn attention(self, heads: [usize; 2], is_causal: bool) -> Self {
        let (source, features) = (self.here(), self.shape()[2]);
        let (it, operands) = self.projected(source, heads, heads);
        it.attended(operands, SCALED, &[Argument::Boolean(is_causal)]).dense(features)
    }

    /// Adds attention in a window of this many keys.
    fn window_attention(self, heads: [usize; 2], window: usize) -> Self {
        let (source, features) = (self.here(), self.shape()[2]);
        let (it, operands) = self.projected(source, heads, heads);
        it.attended(operands, "sliding_window_attention", &[integer(window)]).dense(features)
    }

    /// Adds attention whose queries, keys and values are slices of one dense layer's result.
    fn fused_attention(self, heads: [usize; 2], is_causal: bool) -> Self {
        let (width, features) = (heads[0] * heads[1], self.shape()[2]);
        let it = self.dense(3 * width);
        let joined = it.here();
        let part = |it: Self, part: usize| {
            let range = [integer(2), integer(part * width), integer((part + 1) * width)];
            it.at(joined).apply("slice", &range).heads(heads)
        };
        let it = part(it, 0);
        let query = it.here();
        let it = part(it, 1);
        let key = it.here();
        let it = part(it, 2);
        let value = it.here();
        it.attended([query, key, value], SCALED, &[Argument::Boolean(is_causal)]).dense(features)
    }

    /// Adds attention by this operator of queries, keys and values `[batch, heads, tokens, head
    /// width]`, with a result of `[batch, tokens, width]`.
    pub(crate) fn attended(
        self,
        [query, key, value]: [Value; 3],
        operator: &str,
        options: &[Argument],
    ) -> Self {
        let mut it = self.at(query);
        let [batch, heads, tokens, width] = it.shape()[..] else {
            unreachable!("queries have four dims")
        };
        let n_heads = &mut it.landmarks().n_heads;
        *n_heads = greatest_common_divisor(*n_heads, heads);
        let operands = [Argument::Tensor(key), Argument::Tensor(value)];
        it.apply(operator, &[&operands[..], options].concat())
            .apply("permute", &[list(&[0, 2, 1, 3])])
            .apply("reshape", &[list(&[batch, tokens, heads * width])])
    }

    /// Adds pre-norm blocks without dropout.
    pub(crate) fn blocks(self, n_blocks: usize, n_heads: usize, is_causal: bool) -> Self {
        let heads = [n_heads, self.shape()[2] / n_heads];
        (0..n_blocks).fold(self, |it, _| {
            it.residual(|it| it.layer_norm().attention(heads, is_causal), |it| it)
                .residual(|it| it.layer_norm().feed_forward(), |it| it)
        })
    }

    fn feed_forward(self) -> Self {
        let width = self.shape()[2];
        self.dense(4 * width).apply("gelu", &[]).dense(width)
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if a == 0 { b } else { greatest_common_divisor(b % a, a) }
}
