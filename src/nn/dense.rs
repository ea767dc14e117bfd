//! Dense layers and embedding tables.

use crate::prelude::*;

/// Computes `x weight^T + bias`: `[.., in]` to `[.., out_features]`, with `weight [out_features,
/// in]` and `bias [out_features]`, both uniform within `1 / sqrt(in)` of 0.
#[crate::layer]
pub fn linear(x: Tensor, out_features: usize) -> Tensor {
    let bound = 1.0 / (x.dim(-1) as f64).sqrt();
    let weight = param("weight", [out_features, x.dim(-1)], uniform(-bound, bound));
    x.matmul(weight.transpose()) + param("bias", [out_features], uniform(-bound, bound))
}

/// Applies [`linear`] without `bias`.
#[crate::layer]
pub fn linear_without_bias(x: Tensor, out_features: usize) -> Tensor {
    let bound = 1.0 / (x.dim(-1) as f64).sqrt();
    let weight = param("weight", [out_features, x.dim(-1)], uniform(-bound, bound));
    x.matmul(weight.transpose())
}

/// The options of [`embedding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedding {
    /// The number of different tokens.
    pub vocabulary: usize,
    /// The features of a token.
    pub width: usize,
}

/// Rows of a table by index: `[..]` of integers to `[.., width]`, with `weight [vocabulary,
/// width]`, standard normal.
#[crate::layer]
pub fn embedding(tokens: Tensor, options: Embedding) -> Tensor {
    let Embedding { vocabulary, width } = options;
    tokens.embedding(param("weight", [vocabulary, width], normal(1.0)))
}
