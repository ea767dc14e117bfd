//! Hashes of how a model uses its parameters.
//!
//! The names of equal layers differ by a number that counts their calls in the source, so two calls
//! that change places exchange their names. The hashes do not depend on the order of calls: weights
//! that were written before can be told from those of the other layer.

use std::{collections::BTreeMap, fmt::Write as _};

use soybean_plan::{Program, fingerprint};

use crate::{graph::Source, network::Network, value::Value};

/// Returns a hash of a text and some numbers.
fn hash(text: &str, numbers: impl IntoIterator<Item = u64>) -> u64 {
    let numbers = numbers.into_iter().flat_map(u64::to_le_bytes);
    fingerprint(text.bytes().chain(numbers))
}

/// Returns the hash of each parameter and buffer of a model's graph, by name. Those that no output
/// depends on have none; if there are no outputs, no loss.
pub(crate) fn use_hashes(network: &Network) -> BTreeMap<String, u64> {
    let graph = &network.graph;
    // How each tensor is computed. A parameter is any one of its shape.
    let mut computed: BTreeMap<Value, u64> = BTreeMap::new();
    let mut text = String::new();
    for value in graph.values() {
        let node = graph.node(value);
        text.clear();
        let written = match &node.source {
            Source::Input { .. } | Source::State => write!(text, "{}", node.name),
            Source::Parameter(init) | Source::Buffer(init) => write!(text, "{init:?}"),
            Source::Operator(operator) => write!(text, "{operator:?}"),
        };
        written.expect("writing to a string cannot fail");
        let extents = node.shape.iter().map(|it| *it as u64);
        let operands = graph.operands(value);
        let of_operands = operands.iter().map(|it| computed[it]);
        computed.insert(value, hash(&text, extents.chain(of_operands)));
    }
    let mut used = results(network);
    for value in graph.values().rev() {
        let Some(&of_result) = used.get(&value) else { continue };
        for (operand, at) in graph.operands(value).iter().zip(0..) {
            let hash = hash("use", [at, computed[&value], of_result]);
            let sum = used.entry(*operand).or_default();
            *sum = sum.wrapping_add(hash);
        }
    }
    let hash_of = |(value, used): (Value, u64)| {
        let node = graph.node(value);
        let is_parameter = matches!(node.source, Source::Parameter(_) | Source::Buffer(_));
        let hash = hash("parameter", [computed[&value], used]);
        is_parameter.then(|| (node.name.clone(), hash))
    };
    used.into_iter().filter_map(hash_of).collect()
}

/// Writes the hashes into a program.
pub(crate) fn with_use_hashes(mut program: Program, hashes: &BTreeMap<String, u64>) -> Program {
    for parameter in program.tables.parameters.to_mut() {
        parameter.use_hash = hashes.get(&*parameter.name).copied().unwrap_or(0);
    }
    program
}

/// Returns the hashes of the outputs. The same function in inference has no loss, so a loss counts
/// only if there is no output.
fn results(network: &Network) -> BTreeMap<Value, u64> {
    let mut used: BTreeMap<Value, u64> = BTreeMap::new();
    let outputs = network.outputs.iter().map(|it| it.1);
    let losses = network.entries.iter().filter_map(|it| it.loss);
    let results: Vec<Value> =
        if network.outputs.is_empty() { losses.collect() } else { outputs.collect() };
    for (value, number) in results.into_iter().zip(0..) {
        let sum = used.entry(value).or_default();
        *sum = sum.wrapping_add(hash("result", [number]));
    }
    used
}
