use soybean::{nn, prelude::*};

#[soybean::model(gpus = 2)]
fn heads(x: Tensor<f32, 8, 6, 30>) -> Tensor {
    let attention = nn::MultiHeadAttention { n_heads: 4, mask: "none" };
    nn::multi_head_attention(x, attention).mean(..)
}

#[soybean::model(gpus = 2)]
fn blocks(x: Tensor<f32, 8, 6, 30>) -> Tensor {
    let options = nn::TransformerBlock { n_heads: 7, mask: "causal", p: 0.1 };
    let h = nn::transformer_block(x, options);
    let attention = nn::GroupedQueryAttention { n_heads: 5, n_key_value_heads: 2, rope_theta: 1e4 };
    (h + nn::grouped_query_attention(x, attention)).mean(..)
}

#[soybean::model(gpus = 2)]
fn others(x: Tensor<f32, 8, 6, 5, 7>, y: Tensor<f32, 8, 6, 7>) -> Tensor {
    let a = nn::unet_down(x).mean(..);
    let b = nn::rotary(y, 1e4).mean(..);
    let c = nn::group_norm(x, nn::GroupNorm { n_groups: 4 }).mean(..);
    let d = nn::linear(y, 8.5).mean(..);
    a + b + c + d
}

#[soybean::model(gpus = 2)]
fn experts(x: Tensor<f32, 48, 16>) -> Tensor {
    let options = nn::MixtureOfExperts {
        n_experts: 8,
        hidden: 32,
        n_chosen: 2,
        capacity_factor: 1.25,
        n_groups: 5,
    };
    let (y, balance) = nn::mixture_of_experts(x, options);
    y.mean(..) + balance
}

fn main() {}
