//! Adapters: small trained layers beside frozen ones.

use super::linear;
use crate::prelude::*;

/// Applies [`linear`] and a low-rank adapter: `linear(x) + scale x lora_a^T lora_b^T`, with `lora_a
/// [rank, in]`, uniform within `1 / sqrt(in)` of 0, and `lora_b [out_features, rank]`, zeros. At
/// first the result is that of [`linear`].
///
/// The attribute's `freeze = ["*.linear.*"]` trains the adapter alone. Source: LoRA, Hu et al.
/// 2021, whose `alpha / r` is `scale`.
#[crate::layer]
pub fn linear_with_lora(x: Tensor, out_features: usize, rank: usize, scale: f64) -> Tensor {
    let bound = 1.0 / (x.dim(-1) as f64).sqrt();
    let down = param("lora_a", [rank, x.dim(-1)], uniform(-bound, bound));
    let up = param("lora_b", [out_features, rank], zeros());
    linear(x, out_features) + x.matmul(down.transpose()).matmul(up.transpose()) * scale
}
