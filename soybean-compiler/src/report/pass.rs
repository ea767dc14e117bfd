//! Passes: the parts of a training step. A prediction is one forward pass.

use std::fmt;

use crate::{network::Network, value::Value};

/// A part of a training step; a prediction is all [`Self::Forward`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// The computation of the loss and the outputs.
    Forward,
    /// The gradients.
    Backward,
    /// The next values of parameters, states and buffers, and the norm of the gradients if they
    /// need it.
    Update,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Update => "update",
        })
    }
}

/// Returns the pass in which each tensor is computed, by its index.
pub(super) fn passes(network: &Network) -> Vec<Pass> {
    let is_of_updates = network.of_updates();
    let is_forward = network.forward();
    let pass = |value: Value| match (is_of_updates[value.index()], is_forward[value.index()]) {
        (true, _) => Pass::Update,
        (false, true) => Pass::Forward,
        (false, false) => Pass::Backward,
    };
    network.graph.values().map(pass).collect()
}
