//! Warnings about a plan: what it does otherwise than its user may expect, and what would help.

use std::collections::BTreeMap;

use soybean_plan::readable_bytes;

use super::{Report, transfers::Context};
use crate::{
    tiling::{Strategy, TiledNetwork},
    value::Value,
};

/// The work above which a plan has a warning.
const MUCH_WORK: f64 = 1.1;

impl Report {
    /// Returns the warnings about the plan, each a sentence.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        [undivided_batch(self), much_work(self), few_bytes(self)].into_iter().flatten().collect()
    }
}

/// Warns of data parallelism that does not split the batch over all ranks.
fn undivided_batch(report: &Report) -> Option<String> {
    let tiled = &report.found.tiled;
    let (parts, n_ranks) = (tiled.parts_of_batch(), tiled.mesh.n_ranks());
    if report.strategy != Strategy::Data || parts == n_ranks {
        return None;
    }
    let help = nearest(batch(tiled), n_ranks);
    Some(format!(
        "data parallelism splits the batch into {parts} parts, not {n_ranks}; the other splits are \
         along other dims; {help} would be split over all GPUs"
    ))
}

/// Warns of much work, and names what takes it.
fn much_work(report: &Report) -> Option<String> {
    if report.work <= MUCH_WORK {
        return None;
    }
    let tiled = &report.found.tiled;
    let n_ranks = tiled.mesh.n_ranks();
    let cause = match (repeated(tiled), padded(tiled)) {
        (Some(it), _) => {
            format!("`{}` is computed {} times", Context::new(report).name(it), tiled.n_copies(it))
        }
        (None, Some((user, padded))) => format!("an extent of {user} is padded to {padded}"),
        (None, None) => "operators are repeated".to_owned(),
    };
    let batch = batch(tiled);
    let help = match batch.is_multiple_of(n_ranks) {
        true => format!("a width that {n_ranks} divides"),
        false => nearest(batch, n_ranks),
    };
    Some(format!(
        "GPUs do {:.2} times the work of one device: {cause}; {help} may need less",
        report.work
    ))
}

/// Names the limit on work with which padding would save bytes.
fn few_bytes(report: &Report) -> Option<String> {
    let heavier = report.padding.heavier?;
    Some(format!(
        "a plan with more padding moves {}, with {:.2} times the work of one device: \
         `max_work = {:.2}` allows it",
        readable_bytes(heavier.bytes),
        heavier.work,
        (heavier.work * 100.0).ceil() / 100.0
    ))
}

/// Returns dim 0 of the first input, as the user wrote it.
fn batch(tiled: &TiledNetwork) -> usize {
    let graph = &tiled.network.graph;
    let of_input = |&it| graph.node(it).unpadded.first().copied();
    tiled.network.inputs.first().and_then(of_input).unwrap_or(1)
}

/// Names the batches next to this one that the ranks divide.
fn nearest(batch: usize, n_ranks: usize) -> String {
    let above = batch.next_multiple_of(n_ranks);
    match above.saturating_sub(n_ranks) {
        0 => format!("a batch of {above}"),
        below => format!("a batch of {below} or {above}"),
    }
}

/// Returns the tensor whose repeated computation takes the most operations, if they are many.
fn repeated(tiled: &TiledNetwork) -> Option<Value> {
    let network = &tiled.network;
    let is_measured = network.measured();
    let computed = network.graph.values().filter(|it| {
        is_measured[it.index()] && tiled.forms[it.index()].is_some() && tiled.n_copies(*it) > 1
    });
    let most = computed
        .max_by(|one, other| tiled.operations_of(*one).total_cmp(&tiled.operations_of(*other)))?;
    Some(most).filter(|it| tiled.operations_of(*it) > 0.01 * tiled.operations())
}

/// Returns the padded extent with the most elements of padding in all tensors: the user's, and the
/// one in its place.
fn padded(tiled: &TiledNetwork) -> Option<(usize, usize)> {
    let mut elements: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for value in tiled.network.graph.values() {
        let node = tiled.network.graph.node(value);
        for (&user, &padded) in node.unpadded.iter().zip(node.shape.iter()) {
            if user != padded {
                *elements.entry((user, padded)).or_default() +=
                    node.shape.n_elements() / padded * (padded - user);
            }
        }
    }
    elements.into_iter().max_by_key(|(_, n)| *n).map(|(extents, _)| extents)
}
