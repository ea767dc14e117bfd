//! Mixtures of experts.

use super::dense::linear_without_bias;
use crate::prelude::*;

/// The options of [`mixture_of_experts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixtureOfExperts {
    /// The number of experts.
    pub n_experts: usize,
    /// The features of their hidden layers.
    pub hidden: usize,
    /// The experts of each token.
    pub n_chosen: usize,
    /// The tokens that an expert takes at most: usually `n_chosen * tokens / n_experts` times a
    /// factor of 1 to 2. The number of all tokens drops none.
    pub capacity: usize,
}

/// Applies a sparse mixture of feed-forward networks to tokens `x [tokens, width]`. Returns the
/// sum over each token's experts, `[tokens, width]`, and the load-balancing loss, a scalar to be
/// added to the model's loss with a factor such as 0.01.
///
/// A router without bias scores the experts, and the softmax of the `n_chosen` greatest scores
/// weighs their results, as in Mixtral. Experts take all first choices before any second one, each
/// in the order of the tokens, and drop those beyond the capacity, as in GShard. A dropped choice
/// adds nothing.
///
/// The experts have a GELU between `w1 [n_experts, hidden, width]` and `w2 [n_experts, width,
/// hidden]`. Products with one-hot tensors send tokens to experts and back, so a plan may split
/// the experts. Sources: Lepikhin et al. 2021 (GShard), Fedus et al. 2022 (the loss), Jiang et al.
/// 2024 (Mixtral).
#[crate::layer]
pub fn mixture_of_experts(x: Tensor, options: MixtureOfExperts) -> (Tensor, Tensor) {
    let MixtureOfExperts { n_experts, hidden, n_chosen, capacity } = options;
    let (n_tokens, width) = (x.dim(0), x.dim(1));
    let scores = linear_without_bias(x, n_experts);
    let (chosen, experts) = scores.topk(n_chosen, 1);
    let choices = experts.one_hot(n_experts);
    // Each choice's place in the queue of its expert.
    let queue = choices.permute([1, 0, 2]).reshape([n_chosen * n_tokens, n_experts]);
    let places = (queue * (queue.cumsum(0) - 1.0)).sum(1).reshape([n_chosen, n_tokens]);
    // A place beyond the capacity has no 1.
    let slots = places.to_i32().one_hot(capacity);
    let sent = choices.einsum("tke,ktc->tec", slots);
    let weighed = choices * chosen.softmax(1).unsqueeze(2);
    let returned = weighed.einsum("tke,ktc->tec", slots);
    let (narrow, wide) = (1.0 / (width as f64).sqrt(), 1.0 / (hidden as f64).sqrt());
    let w1 = param("w1", [n_experts, hidden, width], uniform(-narrow, narrow));
    let w2 = param("w2", [n_experts, width, hidden], uniform(-wide, wide));
    let inputs = sent.einsum("tec,tw->ecw", x);
    let results = inputs.einsum("ecw,ehw->ech", w1).gelu().einsum("ech,ewh->ecw", w2);
    let y = returned.einsum("tec,ecw->tw", results);
    // The share of each expert in the first choices, times its mean probability.
    let shares = choices.slice(1, 0, 1).squeeze(1).mean(0);
    let balance = (shares * scores.softmax(1).mean(0)).sum(..) * (n_experts as f64);
    (y, balance)
}
