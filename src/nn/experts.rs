//! Mixtures of experts.
#![expect(clippy::cast_possible_truncation, reason = "a capacity is at most the tokens of a group")]

use super::dense::linear_without_bias;
use crate::prelude::*;

/// The options of [`mixture_of_experts`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixtureOfExperts {
    /// The number of experts.
    pub n_experts: usize,
    /// The features of their hidden layers.
    pub hidden: usize,
    /// The experts of each token.
    pub n_chosen: usize,
    /// The places that an expert has for tokens of a group, relative to the mean number of choices:
    /// usually 1 to 2. `n_experts / n_chosen` drops none.
    pub capacity_factor: f64,
    /// The number of groups of consecutive tokens, which divides that of the tokens. 0 stands for
    /// the greatest power of two with which each expert has 32 choices of a group on average.
    pub n_groups: usize,
}

/// Applies a sparse mixture of feed-forward networks to tokens `x [tokens, width]`. Returns the
/// sum over each token's experts, `[tokens, width]`, and the load-balancing loss, a scalar to be
/// added to the model's loss with a factor such as 0.01.
///
/// A router without bias scores the experts, and the softmax of the `n_chosen` greatest scores
/// weighs their results, as in Mixtral. The tokens are cut into groups, and each expert has a queue
/// for each group, as in `GShard`. A queue takes all first choices before any second one, each in
/// the order of the tokens. It drops those beyond its capacity, which is `n_chosen * tokens /
/// n_groups / n_experts * capacity_factor`, rounded up. A dropped choice adds nothing.
///
/// A plan may split the groups and, after an exchange of tokens, the experts. The smaller a group,
/// the more choices are dropped. If tokens choose 2 of 64 experts at random and the factor is 1.25,
/// 0.7 % are dropped with 32 choices for each expert and group, 5.1 % with 8, and none with 256.
/// Products with one-hot tensors send tokens to experts and back. Their operations are about
/// `tokens / n_groups / hidden` times those of the experts.
///
/// The experts have a GELU between `w1 [n_experts, hidden, width]` and `w2 [n_experts, width,
/// hidden]`. Sources: Lepikhin et al. 2021 (`GShard`), Fedus et al. 2022 (the loss), Jiang et al.
/// 2024 (Mixtral).
///
/// # Panics
/// Panics if `n_groups` does not divide the number of tokens.
#[crate::layer]
pub fn mixture_of_experts(x: Tensor, options: MixtureOfExperts) -> (Tensor, Tensor) {
    let MixtureOfExperts { n_experts, hidden, n_chosen, capacity_factor, n_groups } = options;
    let (n_tokens, width) = (x.dim(0), x.dim(1));
    let group = if n_groups == 0 {
        tokens_of_group(n_tokens, n_experts, n_chosen)
    } else {
        assert!(n_tokens % n_groups == 0, "{n_groups} groups do not divide {n_tokens} tokens");
        n_tokens / n_groups
    };
    let n_groups = n_tokens / group;
    let mean = (n_chosen * group) as f64 / n_experts as f64;
    // A token chooses an expert once at most.
    let capacity = ((mean * capacity_factor).ceil() as usize).min(group);
    let x = x.reshape([n_groups, group, width]);
    let scores = linear_without_bias(x, n_experts);
    let (chosen, experts) = scores.topk(n_chosen, 2);
    let choices = experts.one_hot(n_experts);
    // Each choice's place in the queue of its group and expert.
    let queue = choices.permute([0, 2, 1, 3]).reshape([n_groups, n_chosen * group, n_experts]);
    let places = (queue * (queue.cumsum(1) - 1.0)).sum(2).reshape([n_groups, n_chosen, group]);
    // A place beyond the capacity has no 1.
    let slots = places.to_i32().one_hot(capacity);
    let sent = choices.einsum("gtke,gktc->gtec", slots);
    let weighed = choices * chosen.softmax(2).unsqueeze(3);
    let returned = weighed.einsum("gtke,gktc->gtec", slots);
    let (narrow, wide) = (1.0 / (width as f64).sqrt(), 1.0 / (hidden as f64).sqrt());
    let w1 = param("w1", [n_experts, hidden, width], uniform(-narrow, narrow));
    let w2 = param("w2", [n_experts, width, hidden], uniform(-wide, wide));
    let inputs = sent.einsum("gtec,gtw->gecw", x);
    let results = inputs.einsum("gecw,ehw->gech", w1).gelu().einsum("gech,ewh->gecw", w2);
    let y = returned.einsum("gtec,gecw->gtw", results).reshape([n_tokens, width]);
    // The share of each expert in the first choices, times its mean probability.
    let shares = choices.slice(2, 0, 1).squeeze(2).mean([0, 1]);
    let balance = (shares * scores.softmax(2).mean([0, 1])).sum(..) * (n_experts as f64);
    (y, balance)
}

/// Halves groups while each expert has at least 32 choices of a group on average.
#[crate::layer]
pub(super) fn tokens_of_group(n_tokens: usize, n_experts: usize, n_chosen: usize) -> usize {
    let mut group = n_tokens;
    for _ in 0..32 {
        if group % 2 == 0 && group / 2 * n_chosen >= 32 * n_experts {
            group /= 2;
        }
    }
    group
}
