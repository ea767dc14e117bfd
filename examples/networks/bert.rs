//! BERT for masked tokens, with the names of Hugging Face. Source: Devlin et al. 2019.

use soybean::{nn, prelude::*};

/// The names of `BertForMaskedLM`, as `soybean::weights::Mapping` reads them. The bias of the
/// decoder may be stored twice.
pub(crate) const HUGGING_FACE: &str = "\
    unused bert.embeddings.position_ids
    unused cls.predictions.decoder.*
    bert.embeddings.word_embeddings.weight = bert.words
    bert.embeddings.position_embeddings.weight = bert.positions
    bert.embeddings.token_type_embeddings.weight = bert.segments
    bert.embeddings.LayerNorm.* = bert.layer_norm_with.0.*
    bert.encoder.layer.*.attention.self.query.* = \
        bert.bert_layer.*.multi_head_attention.linear.0.*
    bert.encoder.layer.*.attention.self.key.* = \
        bert.bert_layer.*.multi_head_attention.linear.1.*
    bert.encoder.layer.*.attention.self.value.* = \
        bert.bert_layer.*.multi_head_attention.linear.2.*
    bert.encoder.layer.*.attention.output.dense.* = \
        bert.bert_layer.*.multi_head_attention.linear.3.*
    bert.encoder.layer.*.attention.output.LayerNorm.* = bert.bert_layer.*.layer_norm_with.0.*
    bert.encoder.layer.*.intermediate.dense.* = bert.bert_layer.*.feed_forward.linear.0.*
    bert.encoder.layer.*.output.dense.* = bert.bert_layer.*.feed_forward.linear.1.*
    bert.encoder.layer.*.output.LayerNorm.* = bert.bert_layer.*.layer_norm_with.1.*
    cls.predictions.transform.dense.* = bert.linear.*
    cls.predictions.transform.LayerNorm.* = bert.layer_norm_with.1.*
    cls.predictions.bias = bert.bias";

/// The sizes of a BERT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bert {
    pub(crate) vocabulary: usize,
    /// The number of learned positions.
    pub(crate) n_positions: usize,
    pub(crate) width: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_layers: usize,
}

/// Tokens `[batch, length]` of one segment to logits `[batch, length, vocabulary]` of the tokens at
/// the same places. The table of tokens is that of the logits, too.
#[soybean::layer]
pub(crate) fn bert(tokens: Tensor, sizes: Bert) -> Tensor {
    let Bert { vocabulary, n_positions, width, n_heads, n_layers } = sizes;
    let words = param("words", [vocabulary, width], normal(0.02));
    let positions = param("positions", [n_positions, width], normal(0.02));
    let segments = param("segments", [2, width], normal(0.02));
    let places = positions.slice(0, 0, tokens.dim(1)) + segments.slice(0, 0, 1);
    let mut h = nn::layer_norm_with(tokens.embedding(words) + places, 1e-12);
    for _ in 0..n_layers {
        h = nn::bert_layer(h, nn::BertLayer { n_heads, hidden: 4 * width, eps: 1e-12 });
    }
    let found = nn::layer_norm_with(nn::linear(h, width).gelu(), 1e-12);
    found.matmul(words.transpose()) + param("bias", [vocabulary], zeros())
}
