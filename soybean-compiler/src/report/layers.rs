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

/// A path with `*` for its numbers, which layers and tensors that repeat have in common: `block.*.dense`.
pub(super) fn pattern(path: &str) -> String {
    let is_number = |part: &str| part.bytes().all(|it| it.is_ascii_digit());
    let part = |part: &str| if is_number(part) { "*".to_owned() } else { part.to_owned() };
    path.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// Things of equal content with their names, in the order in which the first of each stands.
pub(super) fn grouped<T: PartialEq>(
    items: impl Iterator<Item = (String, T)>,
) -> Vec<(Vec<String>, T)> {
    let mut groups: Vec<(Vec<String>, T)> = Vec::new();
    for (name, content) in items {
        let is_alike =
            |it: &&mut (Vec<String>, T)| it.1 == content && pattern(&it.0[0]) == pattern(&name);
        match groups.iter_mut().find(is_alike) {
            Some((names, _)) => names.push(name),
            None => groups.push((vec![name], content)),
        }
    }
    groups
}

/// What a group of things is called, where there are so many of its pattern altogether.
pub(super) fn group_name(names: &[String], n_of_pattern: usize) -> String {
    match names {
        [one] => one.clone(),
        [first, ..] if names.len() == n_of_pattern => pattern(first),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        [] => String::new(),
    }
}
