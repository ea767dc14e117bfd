//! Mixtures of experts with soft routing.

use soybean_compiler::Argument;

use crate::{Layers, Model, Transformer, layers::integer};

/// A decoder whose blocks have a mixture of experts instead of a perceptron. Every expert sees
/// every token, and gates weigh the results, so there is no selection at run time. A plan can give
/// each GPU some of the experts, or a part of each.
#[derive(Clone, Copy, Debug)]
pub struct Experts {
    /// The sizes of the transformer.
    pub decoder: Transformer,
    /// Experts in each block.
    pub n_experts: usize,
    /// Hidden units of each expert.
    pub n_hidden: usize,
}

impl Experts {
    /// Returns the network.
    #[must_use]
    pub fn model(&self) -> Model {
        self.decoder.decoder_with(|it| self.experts(it))
    }

    fn experts(&self, mut it: Layers) -> Layers {
        let (source, width) = (it.here(), self.decoder.width);
        let shape = [self.n_experts, width, self.n_hidden];
        let (first, second) = (it.parameter("first", &shape), it.parameter("second", &shape));
        let gate = it.parameter("gate", &[width, self.n_experts]);
        // [batch, tokens, experts, 1]: weights that sum to 1 for each token.
        let it = it.apply("matmul", &[gate]).apply("softmax", &[integer(2)]);
        let it = it.apply("unsqueeze", &[integer(3)]);
        let gates = Argument::Tensor(it.here());
        let equation = |text: &str| Argument::Text(text.to_owned());
        it.at(source)
            .apply("einsum", &[equation("bsd,edf->bsef"), first])
            .apply("gelu", &[])
            .apply("mul", &[gates])
            .apply("einsum", &[equation("bsef,edf->bsd"), second])
            .ended()
    }
}
