//! Layers: which parts of the model tensors belong to, by the paths of parameters' names.

use std::collections::BTreeMap;

use soybean_compiler::{
    Report,
    graph::{Source, Value},
};

/// The layers of tensors, for those that have one.
///
/// A parameter's path is its layer: `dense.2` of `dense.2.w`. Its states and next values belong there too, and what is computed from it directly. Other
/// forward tensors go along with an operand; other gradients with what is computed from them, or with the activation that they read.
pub(crate) fn layers(report: &Report) -> BTreeMap<Value, String> {
    let network = &report.search().tiled.network;
    let graph = &network.graph;
    let mut layers = of_names(report);
    let is_forward = graph.ancestors(&network.fetched());
    let of_parameter = |layers: &BTreeMap<Value, String>, value: Value| {
        let operands = graph.operands(value);
        let parameter = operands.iter().find(|it| network.parameters.contains(it));
        parameter.and_then(|it| layers.get(it).cloned())
    };
    for value in graph.values().filter(|it| is_forward[it.index()]) {
        let of_operands = || graph.operands(value).iter().find_map(|it| layers.get(it).cloned());
        if !layers.contains_key(&value)
            && let Some(layer) = of_parameter(&layers, value).or_else(of_operands)
        {
            layers.insert(value, layer);
        }
    }
    for value in graph.values().rev().filter(|it| !is_forward[it.index()]) {
        let of_users = || graph.users(value).iter().find_map(|it| layers.get(it).cloned());
        let of_operands = || graph.operands(value).iter().find_map(|it| layers.get(it).cloned());
        if !layers.contains_key(&value)
            && let Some(layer) = of_parameter(&layers, value).or_else(of_users).or_else(of_operands)
        {
            layers.insert(value, layer);
        }
    }
    layers
}

/// The layers of parameters and of what belongs to them: a state is called by its parameter's name and its own.
fn of_names(report: &Report) -> BTreeMap<Value, String> {
    let network = &report.search().tiled.network;
    let mut layers = BTreeMap::new();
    let kept = network.parameters.iter().map(|&it| (it, it)).chain(network.updates.iter().copied());
    for (source, next) in kept {
        let node = network.graph.node(source);
        let parameter = match node.source {
            Source::State => node.name.rsplit_once('.').map_or("", |(parameter, _)| parameter),
            Source::Parameter(_)
            | Source::Buffer(_)
            | Source::Input { .. }
            | Source::Operator(_) => node.name.as_str(),
        };
        if let Some((layer, _)) = parameter.rsplit_once('.') {
            layers.insert(source, layer.to_owned());
            layers.insert(next, layer.to_owned());
        }
    }
    layers
}
