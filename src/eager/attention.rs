//! Attention.

use super::Tensor;

impl Tensor {
    /// Computes `softmax(q k^T / sqrt(d)) v` with the softmax over the keys. `q: [.., n, d]`, `k:
    /// [.., m, d]`, `v: [.., m, e]` with equal leading dims (`[batch, heads]`) give `[.., n, e]`.
    /// If `is_causal`, query `i` attends to the keys `0..=i` only. Source: Vaswani et al. 2017.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[must_use]
    pub fn scaled_dot_product_attention(self, key: Self, value: Self, is_causal: bool) -> Self {
        let width = self.shape().last().copied().unwrap_or(1) as f64;
        let scores = self.matmul(key.transpose()) / width.sqrt();
        let shape = scores.shape();
        let (queries, keys) = (indices(shape[shape.len() - 2]), indices(shape[shape.len() - 1]));
        let is_seen = keys.le(queries.unsqueeze(-1));
        let seen = if is_causal { scores.where_(is_seen, f64::NEG_INFINITY) } else { scores };
        seen.softmax(-1).matmul(value)
    }
}

fn indices(extent: usize) -> Tensor {
    Tensor::new([extent], &(0..extent).map(|it| it as f64).collect::<Vec<_>>())
}
