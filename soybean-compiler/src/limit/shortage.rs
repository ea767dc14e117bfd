//! What is missing where no plan fits.

use soybean_plan::Mesh;

use super::fit::leanest;
use crate::{
    fault::{At, ModelFault},
    network::Network,
    peak::{Content, Peak},
    size::readable_memory,
};

/// How many larger numbers of ranks are tried.
const N_TRIES: usize = 4;
/// How many tensors are named.
const N_NAMED: usize = 5;

/// The fault: how much the leanest plan needs, for what, and on how many GPUs the model fits.
pub(crate) fn fault(
    network: &Network,
    mesh: Mesh,
    limit: u64,
    lean: &Peak,
    most_gpus: usize,
) -> ModelFault {
    let n_gpus = mesh.n_ranks();
    let message = format!(
        "`memory`: the leanest plan found needs {} on each of {n_gpus} GPUs, but {} are there\n  \
         of which: {}\n  largest:  {}",
        readable_memory(lean.bytes()),
        readable_memory(limit),
        contents(lean),
        largest(network, lean),
    );
    ModelFault { at: At::Memory, message, help: Some(help(network, n_gpus, limit, most_gpus)) }
}

/// `parameters 3.1 GiB, activations 2.0 GiB`
fn contents(lean: &Peak) -> String {
    let held = lean.by_content();
    let named = Content::NAMES.into_iter().filter(|(.., it)| held[it] > 0);
    let texts: Vec<String> =
        named.map(|(_, name, it)| format!("{name} {}", readable_memory(held[&it]))).collect();
    texts.join(", ")
}

/// `w [1024, 4096] 2.0 MiB, b [4096] 2.0 KiB`
fn largest(network: &Network, lean: &Peak) -> String {
    let graph = &network.graph;
    let mut texts: Vec<String> = Vec::new();
    for held in &lean.held {
        let Some(value) = held.value else { continue };
        let node = graph.node(value);
        let name = if node.name.is_empty() { value.to_string() } else { node.name.clone() };
        let kind = if held.content == Content::Collectives { "copy of " } else { "" };
        texts.push(format!("{kind}`{name}` {} {}", node.shape, readable_memory(held.bytes)));
        if texts.len() == N_NAMED {
            break;
        }
    }
    texts.join(", ")
}

/// On how many GPUs the model fits: the first multiple of the number at hand for which a plan is found, among a few.
fn help(network: &Network, n_gpus: usize, limit: u64, most_gpus: usize) -> String {
    let at_least = fewest_gpus(network, limit).max(n_gpus + 1);
    let numbers = (2..).map(|it| it * n_gpus).take_while(|&it| it <= most_gpus);
    let mut tried = numbers.filter(|&it| it >= at_least && is_searched(it)).take(N_TRIES);
    let fitting = tried.find(|&it| leanest(network, Mesh::new(it), limit).bytes() <= limit);
    match fitting {
        Some(n_gpus) => format!("it fits on {n_gpus} GPUs"),
        None => format!("at least {at_least} GPUs are needed; a smaller batch needs less memory"),
    }
}

/// Whether the search is known to be fast for this number of ranks: one of few prime factors, all small.
fn is_searched(n_gpus: usize) -> bool {
    Mesh::new(n_gpus).sizes().all(|it| it <= 3)
}

/// The number of ranks without which not even what stays from step to step has room.
fn fewest_gpus(network: &Network, limit: u64) -> usize {
    let graph = &network.graph;
    let stays = graph.values().filter(|&it| graph.operator(it).is_none());
    let bytes = |value| {
        let node = graph.node(value);
        (node.shape.n_elements() * node.dtype.bytes()) as u64
    };
    usize::try_from(stays.map(bytes).sum::<u64>().div_ceil(limit)).unwrap_or(usize::MAX)
}
