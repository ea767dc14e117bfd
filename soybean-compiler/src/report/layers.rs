//! Layers: which calls of the user's functions tensors belong to.

use crate::network::Network;

/// Returns the path of the layer of each tensor, by its index; empty for the model's own function.
pub(super) fn layers(network: &Network) -> Vec<String> {
    let layer = |value| network.site(value).map_or_else(String::new, |site| site.layer.clone());
    network.graph.values().map(layer).collect()
}
