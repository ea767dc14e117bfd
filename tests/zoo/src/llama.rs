//! Decoders with rotary positions, heads of queries that share keys, gates and RMS norm. Sources:
//! Touvron et al. 2023; Su et al. 2021 (rotary positions); Ainslie et al. 2023 (grouped queries);
//! Shazeer 2020 (gates).

use soybean_compiler::{Argument, Value};
use soybean_plan::DType;

use crate::{
    Layers, Model,
    layers::{integer, list},
    transformer::SCALED,
};

/// The sizes of a decoder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Llama {
    pub(crate) batch: usize,
    pub(crate) tokens: usize,
    pub(crate) width: usize,
    pub(crate) n_blocks: usize,
    /// Heads of queries, and the features of each head.
    pub(crate) heads: [usize; 2],
    /// Heads of keys and values.
    pub(crate) n_key_value_heads: usize,
    /// The hidden features of feed-forward layers.
    pub(crate) hidden: usize,
    pub(crate) n_words: usize,
    /// The base of the frequencies of rotary positions.
    pub(crate) theta: f64,
    /// The number of keys that a query sees, if not all before it.
    pub(crate) window: Option<usize>,
    /// Normalizes each head of queries and keys.
    pub(crate) has_head_norms: bool,
}

/// The width of recipe `l24`: between Llama's 1B and 7B, with fewer heads of keys.
pub(crate) const LLAMA: Llama = Llama {
    batch: 8,
    tokens: 1024,
    width: 2048,
    n_blocks: 24,
    heads: [16, 128],
    n_key_value_heads: 4,
    hidden: 5632,
    n_words: 32_000,
    theta: 10_000.0,
    window: None,
    has_head_norms: false,
};

/// Llama 3 of 8 billion parameters. Source: Grattafiori et al. 2024, table 3.
pub(crate) const LLAMA3_8B: Llama = Llama {
    tokens: 8192,
    width: 4096,
    n_blocks: 32,
    heads: [32, 128],
    n_key_value_heads: 8,
    hidden: 14_336,
    n_words: 128_256,
    theta: 500_000.0,
    ..LLAMA
};

/// Llama 3 of 70 billion parameters. Source: as above.
pub(crate) const LLAMA3_70B: Llama = Llama {
    batch: 64,
    tokens: 2048,
    width: 8192,
    n_blocks: 80,
    heads: [64, 128],
    hidden: 28_672,
    ..LLAMA3_8B
};

/// Mistral 7B. Source: Jiang et al. 2023, table 1.
pub(crate) const MISTRAL: Llama =
    Llama { n_words: 32_000, theta: 10_000.0, window: Some(4096), ..LLAMA3_8B };

impl Llama {
    /// Returns the network.
    pub(crate) fn model(&self) -> Model {
        self.model_with(|it| it.gated(self.hidden))
    }

    /// Returns the network with other feed-forward layers.
    pub(crate) fn model_with(&self, feed_forward: impl Fn(Layers) -> Layers) -> Model {
        let mut it = Layers::new(DType::I32, &[self.batch, self.tokens], false).with_parameter(
            "embedding",
            "words",
            &[self.n_words, self.width],
        );
        for _ in 0..self.n_blocks {
            it = it.residual(|it| self.attention(it.rms_norm()), |it| it);
            it = it.residual(|it| feed_forward(it.rms_norm()), |it| it);
        }
        it.rms_norm().dense(self.n_words).classified(&[self.batch, self.tokens])
    }

    fn attention(&self, it: Layers) -> Layers {
        let (source, features) = (it.here(), it.shape()[2]);
        let keys = [self.n_key_value_heads, self.heads[1]];
        let (mut it, [query, key, value]) = it.projected(source, self.heads, keys);
        let turned = |it: Layers, value: Value| {
            let it = it.at(value);
            if self.has_head_norms { it.rms_norm() } else { it }.rotary(self.theta)
        };
        it = turned(it, query);
        let query = it.here();
        it = turned(it, key);
        let operands = [query, it.here(), value];
        match self.window {
            None => it.attended(operands, SCALED, &[Argument::Boolean(true)]),
            Some(n) => it.attended(operands, "sliding_window_attention", &[integer(n)]),
        }
        .dense(features)
    }
}

impl Layers {
    /// Turns pairs of features of `[batch, heads, tokens, features]` by angles that grow with the
    /// position.
    fn rotary(mut self, theta: f64) -> Self {
        let x = Argument::Tensor(self.here());
        let (length, features) = (self.shape()[2], self.shape()[3]);
        let half = features / 2;
        let exponent = Argument::Float(-2.0 * theta.ln() / features as f64);
        let it = self.call("arange", &[integer(half)]).apply("mul", &[exponent]).apply("exp", &[]);
        let frequencies = Argument::Tensor(it.here());
        let it = it.call("arange", &[integer(length)]);
        self = it.apply("reshape", &[list(&[length, 1])]).apply("mul", &[frequencies]);
        let angle = [Argument::Tensor(self.here())];
        let mut value =
            |operator: &str, of: &[Argument]| Argument::Tensor(self.value(operator, of));
        let (cos, sin) = (value("cos", &angle), value("sin", &angle));
        let first = value("slice", &[x.clone(), integer(3), integer(0), integer(half)]);
        let second = value("slice", &[x, integer(3), integer(half), integer(features)]);
        let mut product = |a: &Argument, b: &Argument| value("mul", &[a.clone(), b.clone()]);
        let products = [(&first, &cos), (&second, &sin), (&second, &cos), (&first, &sin)];
        let [a, b, c, d] = products.map(|(part, turn)| product(part, turn));
        let turned = vec![value("sub", &[a, b]), value("add", &[c, d])];
        self.call("concat", &[Argument::List(turned), integer(3)])
    }

    /// Adds a feed-forward layer with SiLU gates.
    fn gated(self, hidden: usize) -> Self {
        let (source, features) = (self.here(), self.shape()[2]);
        let it = self.dense(hidden).apply("silu", &[]);
        let gate = Argument::Tensor(it.here());
        it.at(source).dense(hidden).apply("mul", &[gate]).dense(features)
    }
}
