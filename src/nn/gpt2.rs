//! Blocks of GPT-2. Source: Radford et al. 2019.

use super::{attention::heads, norm::layer_norm};
use crate::prelude::*;

/// Computes `x weight + bias`: `[.., in]` to `[.., out_features]`, with `weight [in,
/// out_features]`, normal with a deviation of 0.02, and `bias [out_features]`, zeros. It is
/// `Conv1D` of Hugging Face's GPT-2, whose matrices are the transposed ones of [`super::linear`].
#[crate::layer]
pub fn transposed_linear(x: Tensor, out_features: usize) -> Tensor {
    let weight = param("weight", [x.dim(-1), out_features], normal(0.02));
    x.matmul(weight) + param("bias", [out_features], zeros())
}

/// The options of [`gpt2_attention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpt2Attention {
    /// The number of heads, which divides the width.
    pub n_heads: usize,
}

/// Applies causal self-attention to `x [batch, length, width]` with `n_heads` heads. Its two
/// [`transposed_linear`] are `c_attn`, which computes queries, keys and values at once, and
/// `c_proj`.
#[crate::layer]
pub fn gpt2_attention(x: Tensor, options: Gpt2Attention) -> Tensor {
    let Gpt2Attention { n_heads } = options;
    let (batch, length, width) = (x.dim(0), x.dim(1), x.dim(2));
    let [query, key, value] = transposed_linear(x, 3 * width).chunk(3, -1);
    let attended = heads(query, n_heads).scaled_dot_product_attention(
        heads(key, n_heads),
        heads(value, n_heads),
        true,
    );
    transposed_linear(attended.permute([0, 2, 1, 3]).reshape([batch, length, width]), width)
}

/// Applies a [`transposed_linear`] to four times the width, GELU by a hyperbolic tangent, and a
/// [`transposed_linear`] back. They are `c_fc` and `c_proj`.
#[crate::layer]
pub fn gpt2_feed_forward(x: Tensor) -> Tensor {
    transposed_linear(transposed_linear(x, 4 * x.dim(-1)).gelu_tanh(), x.dim(-1))
}

/// The options of [`gpt2_block`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt2Block {
    /// The number of heads, which divides the width.
    pub n_heads: usize,
    /// The probability with which training drops an element of a branch.
    pub p: f64,
}

/// Applies a block of GPT-2: [`gpt2_attention`] and [`gpt2_feed_forward`], each after a
/// [`layer_norm`], with a shortcut and with dropout. Hugging Face's GPT-2 also drops weights of
/// attention, which this does not.
#[crate::layer]
pub fn gpt2_block(x: Tensor, options: Gpt2Block) -> Tensor {
    let Gpt2Block { n_heads, p } = options;
    let h = x + gpt2_attention(layer_norm(x), Gpt2Attention { n_heads }).dropout(p);
    h + gpt2_feed_forward(layer_norm(h)).dropout(p)
}
