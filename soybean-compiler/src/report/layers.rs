//! Layers: which calls of the user's functions tensors belong to.

use std::collections::BTreeMap;

use crate::{graph::Source, network::Network};

/// The path of the layer of each tensor, by its index; empty for what belongs to the model's own function.
///
/// Where the builder was not told where its calls stand, a call belongs to the layer that its parameter's name begins with: `dense.2` of `dense.2.w`.
pub(super) fn layers(network: &Network) -> Vec<String> {
    let graph = &network.graph;
    let mut of_names: BTreeMap<usize, String> = BTreeMap::new();
    for value in graph.values() {
        let Source::Parameter(_) = graph.node(value).source else { continue };
        let Some((layer, _)) = graph.node(value).name.rsplit_once('.') else { continue };
        for user in [value].into_iter().chain(graph.users(value)) {
            if let Some(origin) = graph.node(user).origin {
                of_names.entry(origin).or_insert_with(|| layer.to_owned());
            }
        }
    }
    let layer = |value| match network.site(value) {
        Some(site) if !site.place.is_empty() => site.layer.clone(),
        Some(_) | None => {
            let origin = graph.node(value).origin;
            origin.and_then(|it| of_names.get(&it)).cloned().unwrap_or_default()
        }
    };
    graph.values().map(layer).collect()
}
