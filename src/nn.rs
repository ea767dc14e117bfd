//! Layers in the model language. Each is an ordinary `#[soybean::layer]` function, to be used, read
//! and copied.
//!
//! Weights have PyTorch's shapes, initial values and last names (`weight`, `bias`, `running_mean`).
//! The prefix of a name is the path of calls: the second [`linear`] of a model's `forward` has
//! `linear.1.weight`.
//!
//! ```
//! #[soybean::model(gpus = 2, optimizer = adamw())]
//! mod classifier {
//!     use soybean::{nn, prelude::*};
//!
//!     pub(crate) fn forward(x: Tensor<f32, 16, 3, 8, 8>, y: Tensor<i32, 16>) -> Tensor {
//!         let window = nn::Window { kernel: 3, stride: 1, padding: 1 };
//!         let mut h = nn::conv_norm_relu(x, 16, window);
//!         h = nn::basic_block(h, nn::BasicBlock { out_channels: 32, stride: 2 });
//!         nn::linear(h.global_avg_pool2d(), 10).cross_entropy(y)
//!     }
//! }
//!
//! fn main() -> Result<(), soybean::Error> {
//!     let mut trainer = classifier::Trainer::new(soybean::Config::default())?;
//!     trainer.step(&classifier::Batch { x: &[0.5; 16 * 3 * 64], y: &[3; 16] })?;
//!     Ok(())
//! }
//! ```
#![expect(clippy::manual_is_multiple_of, reason = "the model language has no such method")]

mod adapter;
mod attention;
mod bert;
pub mod cached;
mod convolution;
mod dense;
mod experts;
mod gpt2;
mod llama;
mod mobile;
mod norm;
pub mod packed;
pub mod padded;
mod position;
mod recurrent;
mod residual;
mod unet;
mod vit;

pub use adapter::{Lora, linear_with_lora, lora};
pub use attention::{
    MultiHeadAttention, TransformerBlock, feed_forward, multi_head_attention, transformer_block,
};
pub use bert::{BertLayer, bert_layer};
pub use convolution::{
    Window, conv_norm, conv_norm_relu, conv_transpose2d, conv1d, conv2d, conv2d_without_bias,
    conv3d, depthwise_conv2d, depthwise_conv2d_without_bias,
};
pub use dense::{Embedding, embedding, linear, linear_without_bias};
pub use experts::{MixtureOfExperts, mixture_of_experts};
pub use gpt2::{
    Gpt2Attention, Gpt2Block, gpt2_attention, gpt2_block, gpt2_feed_forward, transposed_linear,
};
pub use llama::{GroupedQueryAttention, LlamaBlock, grouped_query_attention, llama_block, swiglu};
pub use mobile::{InvertedResidual, inverted_residual};
pub use norm::{
    GroupNorm, batch_norm, group_norm, layer_norm, layer_norm_with, rms_norm, rms_norm_with,
};
pub use position::{rotary, rotary_at};
pub use recurrent::{gru, lstm};
pub use residual::{BasicBlock, Bottleneck, basic_block, bottleneck};
pub use unet::{double_conv, unet_down, unet_up};
pub use vit::{PatchEmbedding, VitBlock, patch_embedding, vit_block};
