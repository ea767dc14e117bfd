//! Normalization.

use crate::prelude::*;

/// Applies [`Tensor::batch_norm`] over the channels of `x [n, c, ..]`, with `weight` and `bias
/// [c]`, and the buffers `running_mean` and `running_var [c]`; momentum 0.1, eps 1e-5.
#[crate::layer]
pub fn batch_norm(x: Tensor) -> Tensor {
    let channels = x.dim(1);
    let weight = param("weight", [channels], ones());
    let bias = param("bias", [channels], zeros());
    let mean = buffer("running_mean", [channels], zeros());
    let var = buffer("running_var", [channels], ones());
    x.batch_norm(mean, var, weight, bias, 0.1, 1e-5)
}

/// Applies [`Tensor::layer_norm`] over the last dim of `x [.., n]`, with `weight` and `bias [n]`;
/// eps 1e-5.
#[crate::layer]
pub fn layer_norm(x: Tensor) -> Tensor {
    let weight = param("weight", [x.dim(-1)], ones());
    x.layer_norm(weight, param("bias", [x.dim(-1)], zeros()), 1e-5)
}

/// Applies [`Tensor::rms_norm`] over the last dim of `x [.., n]`, with `weight [n]`; eps 1e-6.
#[crate::layer]
pub fn rms_norm(x: Tensor) -> Tensor {
    x.rms_norm(param("weight", [x.dim(-1)], ones()), 1e-6)
}

/// Applies [`Tensor::layer_norm`] as [`layer_norm`] does, with this `eps`.
#[crate::layer]
pub fn layer_norm_with(x: Tensor, eps: f64) -> Tensor {
    let weight = param("weight", [x.dim(-1)], ones());
    x.layer_norm(weight, param("bias", [x.dim(-1)], zeros()), eps)
}

/// Applies [`Tensor::rms_norm`] as [`rms_norm`] does, with this `eps`.
#[crate::layer]
pub fn rms_norm_with(x: Tensor, eps: f64) -> Tensor {
    x.rms_norm(param("weight", [x.dim(-1)], ones()), eps)
}

/// The options of [`group_norm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupNorm {
    /// The number of groups, which divides the number of channels.
    pub n_groups: usize,
}

/// Applies [`Tensor::group_norm`] over groups of the channels of `x [n, c, ..]`, with `weight` and
/// `bias [c]`; eps 1e-5.
#[crate::layer]
pub fn group_norm(x: Tensor, options: GroupNorm) -> Tensor {
    let GroupNorm { n_groups } = options;
    let weight = param("weight", [x.dim(1)], ones());
    x.group_norm(n_groups, weight, param("bias", [x.dim(1)], zeros()), 1e-5)
}
