//! Mixtures of experts that see only the tokens of which a router chooses them. Sources: Lepikhin
//! et al. 2021 (queues for groups of tokens), Yang et al. 2025 (Qwen3).

use soybean_compiler::Argument;

use crate::{
    Layers, Model,
    layers::{integer, list},
    llama::{LLAMA, Llama},
};

/// Experts with a queue for each of them and each text.
#[derive(Clone, Copy, Debug)]
struct RoutedExperts {
    n_experts: usize,
    /// The experts of each token.
    n_chosen: usize,
    hidden: usize,
    /// The tokens of a text that an expert takes at most.
    capacity: usize,
}

/// Four blocks of Qwen3-30B-A3B, which has 48. Source: Yang et al. 2025, table 2, and the
/// configuration of the published weights. Queues have a quarter more places than tokens need on
/// average. The loss that balances experts, a scalar, is left out.
pub(crate) fn qwen3_moe() -> Model {
    let decoder = Llama {
        tokens: 2048,
        n_blocks: 4,
        heads: [32, 128],
        n_words: 151_936,
        theta: 1_000_000.0,
        has_head_norms: true,
        ..LLAMA
    };
    let experts = RoutedExperts { n_experts: 128, n_chosen: 8, hidden: 768, capacity: 160 };
    decoder.model_with(|it| experts.layer(it))
}

impl RoutedExperts {
    fn layer(&self, mut it: Layers) -> Layers {
        let source = it.here();
        let [_, _, width] = it.shape()[..] else { unreachable!("texts have three dims") };
        let [sent, returned] = self.routes(&mut it);
        let weights = [[self.hidden, width], [self.hidden, width], [width, self.hidden]];
        let names = ["gate", "up", "down"];
        let [gate, up, down] = [0, 1, 2].map(|at| {
            let [rows, columns] = weights[at];
            it.parameter(names[at], &[self.n_experts, rows, columns])
        });
        for weight in [&gate, &up, &down] {
            if let Argument::Tensor(value) = weight {
                it.landmarks().local.push(*value);
            }
        }
        let equation = |text: &str| Argument::Text(text.to_owned());
        let it = it.call("einsum", &[sent, equation("gtec,gtw->gecw"), Argument::Tensor(source)]);
        let mut it = it.switched();
        let queue = it.here();
        let hidden = it.value("einsum", &[Argument::Tensor(queue), equation("gecw,ehw->gech"), up]);
        it.at(queue)
            .apply("einsum", &[equation("gecw,ehw->gech"), gate])
            .apply("silu", &[])
            .apply("mul", &[Argument::Tensor(hidden)])
            .apply("einsum", &[equation("gech,ewh->gecw"), down])
            .switched()
            .ended()
            .returned(returned)
    }

    /// Returns the places of tokens in queues, `[texts, tokens, experts, places]`: 1, and the
    /// weight of the expert.
    fn routes(&self, it: &mut Layers) -> [Argument; 2] {
        let Self { n_experts, n_chosen, capacity, .. } = *self;
        let [texts, tokens, width] = it.shape()[..] else { unreachable!("texts have three dims") };
        let router = it.parameter("router", &[width, n_experts]);
        let scores = it.value("matmul", &[Argument::Tensor(it.here()), router]);
        let [best, chosen] =
            it.values("topk", &[Argument::Tensor(scores), integer(n_chosen), integer(2)]);
        let mut value = |operator: &str, first: &Argument, others: &[Argument]| {
            let all = [std::slice::from_ref(first), others].concat();
            Argument::Tensor(it.value(operator, &all))
        };
        let choices = value("one_hot", &Argument::Tensor(chosen), &[integer(n_experts)]);
        let queue = value("permute", &choices, &[list(&[0, 2, 1, 3])]);
        let queue = value("reshape", &queue, &[list(&[texts, n_chosen * tokens, n_experts])]);
        let before = value("cumsum", &queue, &[integer(1)]);
        let before = value("sub", &before, &[Argument::Float(1.0)]);
        let places = value("mul", &queue, &[before]);
        let places = value("sum", &places, &[list(&[2])]);
        let places = value("reshape", &places, &[list(&[texts, n_chosen, tokens])]);
        let places = value("to_i32", &places, &[]);
        // A place beyond the capacity has no 1.
        let slots = value("one_hot", &places, &[integer(capacity)]);
        let equation = Argument::Text("gtke,gktc->gtec".to_owned());
        let sent = value("einsum", &choices, &[equation.clone(), slots.clone()]);
        let weights = value("softmax", &Argument::Tensor(best), &[integer(2)]);
        let weights = value("unsqueeze", &weights, &[integer(3)]);
        let weighed = value("mul", &choices, &[weights]);
        [sent, value("einsum", &weighed, &[equation, slots])]
    }
}

impl Layers {
    fn switched(mut self) -> Self {
        let here = self.here();
        self.landmarks().switched.push(here);
        self
    }

    /// Sums the results of each token's experts.
    fn returned(self, weights: Argument) -> Self {
        let results = Argument::Tensor(self.here());
        let equation = Argument::Text("gtec,gecw->gtw".to_owned());
        self.call("einsum", &[weights, equation, results])
    }
}
