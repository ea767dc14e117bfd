//! Attention to texts of several lengths, which padding at their ends makes equally long.
//!
//! No position attends to padding, so that a text has the results that it has alone. The results of
//! the padding itself mean nothing. The parameters have the same names as those of the functions of
//! [`nn`](super) with the same names, so such a model takes the same weights.
//!
//! Causal attention needs no lengths: positions of a text do not attend to later ones.

use super::{
    attention::{MultiHeadAttention, TransformerBlock, feed_forward, heads},
    bert::BertLayer,
    dense::linear,
    norm::{layer_norm, layer_norm_with},
};
use crate::prelude::*;

/// Applies self-attention as [`nn::multi_head_attention`](super::multi_head_attention) does, to `x
/// [batch, length, width]`. Of each text, only the first `lengths [batch]` positions, integers, are
/// seen.
///
/// ```
/// #[soybean::model(gpus = 2)]
/// mod encoder {
///     use soybean::{nn, prelude::*};
///
///     pub(crate) fn forward(
///         tokens: Tensor<i32, 4, 6>,
///         lengths: Tensor<i32, 4>,
///         labels: Tensor<i32, 4>,
///     ) -> Tensor {
///         let h = nn::embedding(tokens, nn::Embedding { vocabulary: 9, width: 8 });
///         let layer = nn::BertLayer { n_heads: 2, hidden: 16, eps: 1e-12 };
///         let h = nn::padded::bert_layer(h, lengths, layer);
///         // The first token stands for the text.
///         nn::linear(h.slice(1, 0, 1).squeeze(1), 3).cross_entropy(labels)
///     }
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     let mut trainer = encoder::Trainer::new(soybean::Config::default())?;
///     let (tokens, labels) = ([3; 4 * 6], [0, 1, 2, 1]);
///     trainer.step(&encoder::Batch { tokens: &tokens, lengths: &[6, 2, 3, 1], labels: &labels })?;
///     Ok(())
/// }
/// ```
#[crate::layer]
pub fn multi_head_attention(x: Tensor, lengths: Tensor, options: MultiHeadAttention) -> Tensor {
    let MultiHeadAttention { n_heads, mask } = options;
    let (batch, length, width) = (x.dim(0), x.dim(1), x.dim(2));
    let query = heads(linear(x, width), n_heads);
    let key = heads(linear(x, width), n_heads);
    let value = heads(linear(x, width), n_heads);
    let scale = 1.0 / ((width / n_heads) as f64).sqrt();
    let attended = query.attention_with(key, value, mask, lengths, 0.0, scale, 0.0);
    linear(attended.permute([0, 2, 1, 3]).reshape([batch, length, width]), width)
}

/// Applies a pre-norm transformer block as [`nn::transformer_block`](super::transformer_block)
/// does: [`multi_head_attention`] and a [`feed_forward`] of four times the width, each with a
/// shortcut and with dropout.
#[crate::layer]
pub fn transformer_block(x: Tensor, lengths: Tensor, options: TransformerBlock) -> Tensor {
    let TransformerBlock { n_heads, mask, p } = options;
    let attention = MultiHeadAttention { n_heads, mask };
    let h = x + multi_head_attention(layer_norm(x), lengths, attention).dropout(p);
    h + feed_forward(layer_norm(h), 4 * x.dim(-1)).dropout(p)
}

/// Applies a layer of BERT as [`nn::bert_layer`](super::bert_layer) does: [`multi_head_attention`]
/// and a [`feed_forward`], each with a shortcut and then a [`layer_norm_with`]. `lengths` are the
/// sums of the rows of Hugging Face's `attention_mask`, for padding at the end.
#[crate::layer]
pub fn bert_layer(x: Tensor, lengths: Tensor, options: BertLayer) -> Tensor {
    let BertLayer { n_heads, hidden, eps } = options;
    let attention = MultiHeadAttention { n_heads, mask: "none" };
    let h = layer_norm_with(x + multi_head_attention(x, lengths, attention), eps);
    layer_norm_with(h + feed_forward(h, hidden), eps)
}
