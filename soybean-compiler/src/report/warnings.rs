//! Warnings about a plan: what it does otherwise than its user may expect, and what would help.

use std::collections::BTreeMap;

use soybean_plan::readable_bytes;

use super::{Report, readable_seconds, transfers::Context};
use crate::{
    graph::Node,
    operators::attend::Attend,
    tiling::{Strategy, TiledNetwork},
    value::Value,
};

/// The work above which a plan has a warning.
const MUCH_WORK: f64 = 1.1;

impl Report {
    /// Returns the warnings about the plan, each a sentence.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let warnings =
            [idle_gpus(self), undivided_batch(self), much_work(self), cheaper_with_more_work(self)];
        warnings.into_iter().flatten().collect()
    }
}

/// Warns of GPUs that are left out.
fn idle_gpus(report: &Report) -> Option<String> {
    let slower = report.slower?;
    let n_gpus = report.n_gpus();
    Some(format!(
        "{n_gpus} of {} GPUs are used: on all of them, a step would take {} instead of {}",
        slower.n_gpus,
        readable_seconds(slower.seconds),
        readable_seconds(slower.chosen_seconds)
    ))
}

/// Warns of data parallelism that does not split the batch over all ranks.
fn undivided_batch(report: &Report) -> Option<String> {
    let tiled = &report.found.tiled;
    let (parts, n_ranks) = (tiled.parts_of_batch(), tiled.mesh.n_ranks());
    if report.strategy != Strategy::Data || parts == n_ranks {
        return None;
    }
    let batch = batch(tiled);
    let help = match batch.is_multiple_of(n_ranks) {
        true => String::new(),
        false => format!("; {} would be split over all GPUs", nearest(batch, n_ranks)),
    };
    Some(format!("data parallelism splits the batch into {parts} parts, not {n_ranks}{help}"))
}

/// A cause of operations besides the user's.
#[derive(Clone, Copy)]
enum Cause {
    /// Ranks compute the same elements of this tensor.
    Repeated(Value),
    /// A dim is longer than the user's.
    Padded { user: usize, stored: usize },
    /// Ranks with late queries of this causal attention have more keys to see than others.
    Unbalanced(Value),
    /// Ranks compute this gradient of attention for the queries and keys of their halos, too.
    Halo(Value),
}

/// Warns of much work, and names what takes most of it.
fn much_work(report: &Report) -> Option<String> {
    if report.work <= MUCH_WORK {
        return None;
    }
    let tiled = &report.found.tiled;
    let (n_ranks, batch) = (tiled.mesh.n_ranks(), batch(tiled));
    let cause = cause(tiled)?;
    let text = match cause {
        Cause::Repeated(it) => {
            format!("`{}` is computed {} times", Context::new(report).name(it), tiled.n_copies(it))
        }
        Cause::Padded { user, stored } => {
            let what = if user == batch { "the batch" } else { "an extent" };
            format!("{what} of {user} is padded to {stored}")
        }
        Cause::Unbalanced(it) => {
            let name = Context::new(report).name(it).to_owned();
            format!("`{name}` takes longest on the GPUs with the last positions")
        }
        Cause::Halo(it) => {
            let name = Context::new(report).name(it).to_owned();
            format!("`{name}` is also computed in the halo of each GPU")
        }
    };
    let help = match cause {
        Cause::Padded { user, stored } if user != batch => format!("{stored} in its place"),
        Cause::Unbalanced(_) => {
            let divisor = n_ranks * tiled.mesh.free_radix();
            format!("a length that {divisor} divides, and that no other dim has,")
        }
        Cause::Halo(_) => "a shorter window".to_owned(),
        _ if batch.is_multiple_of(n_ranks) => format!("a width that {n_ranks} divides"),
        _ => nearest(batch, n_ranks),
    };
    Some(format!(
        "GPUs do {:.2} times the work of one device: {text}; {help} may need less",
        report.work
    ))
}

/// Names the limit on work with which padding would save bytes.
fn cheaper_with_more_work(report: &Report) -> Option<String> {
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

/// Returns what takes the most operations besides the user's: a tensor that is computed several
/// times, or all padding of an extent.
fn cause(tiled: &TiledNetwork) -> Option<Cause> {
    let graph = &tiled.network.graph;
    let weights = tiled.network.weights();
    let mut repeated: Option<(f64, Value)> = None;
    let mut unbalanced: Option<(f64, Value)> = None;
    let mut padded: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for value in graph.values() {
        let weight = weights.of_value(value);
        if weight == 0 || tiled.forms[value.index()].is_none() {
            continue;
        }
        let operations = weight as f64 * tiled.operations_of(value);
        let surplus = operations * (1.0 - 1.0 / tiled.n_copies(value) as f64);
        if surplus > repeated.map_or(0.0, |it| it.0) {
            repeated = Some((surplus, value));
        }
        let surplus = operations * (1.0 - 1.0 / tiled.imbalance(value));
        if surplus > unbalanced.map_or(0.0, |it| it.0) {
            unbalanced = Some((surplus, value));
        }
        let nodes = graph.operands(value).into_iter().chain([value]).map(|it| graph.node(it));
        let mut extents: Vec<(usize, usize)> = nodes.flat_map(padded_extents).collect();
        extents.sort_unstable();
        extents.dedup();
        for (user, stored) in extents {
            *padded.entry((user, stored)).or_default() +=
                operations * (1.0 - user as f64 / stored as f64);
        }
    }
    // Of equal causes the last one counts.
    let padded =
        padded.into_iter().map(|((user, stored), it)| (it, Cause::Padded { user, stored }));
    let has_halo = |it| graph.operator_as::<Attend>(it).is_some_and(|it| it.reads_halo);
    let of_attention = |it| if has_halo(it) { Cause::Halo(it) } else { Cause::Unbalanced(it) };
    let unbalanced = unbalanced.map(|(surplus, it)| (surplus, of_attention(it)));
    let repeated = repeated.map(|(surplus, it)| (surplus, Cause::Repeated(it)));
    let causes = padded.chain(unbalanced).chain(repeated);
    causes.max_by(|one, other| one.0.total_cmp(&other.0)).map(|it| it.1)
}

/// Returns the user's and the stored extents of the padded dims of a tensor.
fn padded_extents(node: &Node) -> Vec<(usize, usize)> {
    let extents = node.unpadded.iter().copied().zip(node.shape.iter().copied());
    extents.filter(|(user, stored)| user != stored).collect()
}
