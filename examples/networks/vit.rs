//! The Vision Transformer, with the names of Hugging Face. Source: Dosovitskiy et al. 2021.

use soybean::{nn, prelude::*};

/// The names of `ViTForImageClassification`, as `soybean::weights::Mapping` reads them.
pub(crate) const HUGGING_FACE: &str = "\
    vit.embeddings.cls_token = vit.cls_token
    vit.embeddings.position_embeddings = vit.positions
    vit.embeddings.patch_embeddings.projection.* = vit.patch_embedding.conv2d.*
    vit.encoder.layer.*.layernorm_before.* = vit.vit_block.*.layer_norm_with.0.*
    vit.encoder.layer.*.attention.attention.query.* = \
        vit.vit_block.*.multi_head_attention.linear.0.*
    vit.encoder.layer.*.attention.attention.key.* = \
        vit.vit_block.*.multi_head_attention.linear.1.*
    vit.encoder.layer.*.attention.attention.value.* = \
        vit.vit_block.*.multi_head_attention.linear.2.*
    vit.encoder.layer.*.attention.output.dense.* = \
        vit.vit_block.*.multi_head_attention.linear.3.*
    vit.encoder.layer.*.layernorm_after.* = vit.vit_block.*.layer_norm_with.1.*
    vit.encoder.layer.*.intermediate.dense.* = vit.vit_block.*.feed_forward.linear.0.*
    vit.encoder.layer.*.output.dense.* = vit.vit_block.*.feed_forward.linear.1.*
    vit.layernorm.* = vit.layer_norm_with.*
    classifier.* = vit.linear.*";

/// The sizes of a Vision Transformer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vit {
    /// The rows and columns of pixels of a patch.
    pub(crate) patch: usize,
    pub(crate) width: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_layers: usize,
    pub(crate) n_classes: usize,
}

/// Images `[n, c, h, w]` to logits `[n, n_classes]`.
#[soybean::layer]
pub(crate) fn vit(images: Tensor, sizes: Vit) -> Tensor {
    let Vit { patch, width, n_heads, n_layers, n_classes } = sizes;
    let patches = nn::patch_embedding(images, nn::PatchEmbedding { patch, width });
    let cls_token = param("cls_token", [1, 1, width], normal(0.02));
    let positions = param("positions", [1, patches.dim(1) + 1, width], normal(0.02));
    let first = cls_token.expand([images.dim(0), 1, width]);
    let mut h = concat([first, patches], 1) + positions;
    for _ in 0..n_layers {
        h = nn::vit_block(h, nn::VitBlock { n_heads, hidden: 4 * width, eps: 1e-12 });
    }
    let normal = nn::layer_norm_with(h, 1e-12);
    nn::linear(normal.slice(1, 0, 1).squeeze(1), n_classes)
}
