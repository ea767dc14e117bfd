//! Entries: the functions of a model that run by themselves, and the tensors that they share.
//!
//! Most models have one entry, `forward`. Others have several, such as one that reads a prompt and
//! one that appends a token, or the two players of a GAN. All are in one graph, so that one search
//! finds the tilings of what they share: parameters, buffers and states of equal names.

use std::{collections::BTreeMap, ops::Range};

use crate::{
    builder::Made,
    denominator::Quotient,
    diagnostic::{ModelDiagnostic, ModelPart},
    graph::{Node, Source},
    network::Network,
    rewrite::rewrite,
    value::Value,
};

/// The name of the entry of models that do not name any.
pub(crate) const FORWARD: &str = "forward";

/// A function of a network's model that runs by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The function's name.
    pub name: String,
    /// The number of its calls in the computation that plans are measured by.
    pub n_calls: u64,
    /// The places of its inputs in [`Network::inputs`].
    pub inputs: Range<usize>,
    /// The places of its outputs in [`Network::outputs`].
    pub outputs: Range<usize>,
    /// The places of its updates in [`Network::updates`].
    pub updates: Range<usize>,
    /// The places of its gradients in [`Network::gradients`].
    pub gradients: Range<usize>,
    /// The parameters and buffers that it asks for, call by call. What calls share is there for
    /// each call.
    pub parameters: Vec<Value>,
    /// Patterns of the names of parameters that it does not train.
    pub freeze: Vec<String>,
    /// The scalar that its training steps minimize; none in inference.
    pub loss: Option<Value>,
    /// The number of the batch that divides the loss, such as a count of labels. It weighs the
    /// losses of batches in their mean.
    pub loss_weight: Option<Value>,
    /// The loss over numbers of the batch, if steps share an update and it is divided by some.
    pub quotient: Option<Quotient>,
    /// The losses that steps leave, if they share an update.
    pub shared_loss: Option<SharedLoss>,
    /// The 2-norm of all its gradients together, if updates need it.
    pub gradient_norm: Option<Value>,
    /// The number of the first entry that trains the same parameters.
    pub trains_like: usize,
}

impl Entry {
    /// Returns the entry of a network on another graph, given the replacement of each tensor.
    pub(crate) fn remapped(&self, of: &BTreeMap<Value, Value>) -> Self {
        let parameters = self.parameters.iter().map(|it| of[it]).collect();
        let loss = self.loss.map(|it| of[&it]);
        let loss_weight = self.loss_weight.map(|it| of[&it]);
        let gradient_norm = self.gradient_norm.map(|it| of[&it]);
        let quotient = self.quotient.as_ref().map(|it| it.remapped(of));
        let shared_loss = self.shared_loss.map(|SharedLoss { accumulating, updating }| {
            SharedLoss { accumulating: of[&accumulating], updating: of[&updating] }
        });
        Self { parameters, loss, loss_weight, quotient, shared_loss, gradient_norm, ..self.clone() }
    }
}

/// The losses of the steps that share an update. They are finite if the gradients of the step
/// count, so they are 0 where nothing is counted and a mean over it would be NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedLoss {
    /// That of an accumulating step.
    pub accumulating: Value,
    /// That of a step that updates; 0 if it updates without a batch. It is finite only if the
    /// update divides by a number that is not 0.
    pub updating: Value,
}

/// The beginning of an entry among the builder's calls.
#[derive(Clone, Debug)]
pub(crate) struct EntryStart {
    pub(crate) name: String,
    pub(crate) n_calls: u64,
    /// The number of calls before it.
    pub(crate) first_call: usize,
    /// The number of tensors before it.
    pub(crate) first_value: usize,
    /// Patterns of the names of parameters that it does not train.
    pub(crate) freeze: Vec<String>,
    /// The scalar that it minimizes; none in inference.
    pub(crate) loss: Option<Value>,
}

/// Returns the entries of a network, given their starts. Each has what was made between its start
/// and the next, among all calls of the builder.
pub(crate) fn entries(
    starts: &[EntryStart],
    loss: Option<Value>,
    calls: &[Made],
    network: &Network,
) -> Vec<Entry> {
    let (name, freeze) = (FORWARD.to_owned(), Vec::new());
    let only = EntryStart { name, n_calls: 1, first_call: 0, first_value: 0, freeze, loss };
    let starts = if starts.is_empty() { &[only] } else { starts };
    let ends = starts[1..].iter().map(|it| (it.first_value, it.first_call));
    let ends = ends.chain([(usize::MAX, calls.len())]);
    let parameter = |made: &Made| made.source().filter(|value| network.graph.is_parameter(*value));
    let entry = |(number, (start, (end, last_call))): (usize, (&EntryStart, (usize, usize)))| {
        let own = start.first_value..end;
        let range = |made: &[Value]| {
            let before = |at: usize| made.iter().filter(|it| it.index() < at).count();
            before(own.start)..before(own.end)
        };
        let (outputs, next): (Vec<Value>, Vec<Value>) = (
            network.outputs.iter().map(|it| it.1).collect(),
            network.updates.iter().map(|it| it.1).collect(),
        );
        Entry {
            name: start.name.clone(),
            n_calls: start.n_calls,
            inputs: range(&network.inputs),
            outputs: range(&outputs),
            updates: range(&next),
            gradients: 0..0,
            parameters: calls[start.first_call..last_call].iter().filter_map(parameter).collect(),
            freeze: start.freeze.clone(),
            loss: start.loss,
            loss_weight: None,
            quotient: None,
            shared_loss: None,
            gradient_norm: None,
            trains_like: number,
        }
    };
    starts.iter().zip(ends).enumerate().map(entry).collect()
}

/// Lets parameters, buffers and states of equal names in different entries be one tensor.
///
/// # Errors
/// Returns a fault for each tensor whose shape, kind or initial values differ from those of the
/// tensor with its name in an earlier entry.
pub(crate) fn with_shared_tensors(
    network: Network,
    starts: &[EntryStart],
) -> Result<Network, Vec<ModelDiagnostic>> {
    if starts.len() < 2 {
        return Ok(network);
    }
    let entry_of = |it: Value| starts.partition_point(|start| start.first_value <= it.index()) - 1;
    let mut first_of: BTreeMap<String, Value> = BTreeMap::new();
    let mut faults = Vec::new();
    let shared = rewrite(&network, |rewriter, value| {
        let node = rewriter.old.node(value);
        if !node.source.is_kept() || node.name.is_empty() {
            return Some(rewriter.copy(value));
        }
        let first = *first_of.entry(node.name.clone()).or_insert(value);
        if entry_of(first) == entry_of(value) {
            return Some(rewriter.copy(value));
        }
        let of_first = rewriter.old.node(first);
        let place = format!("in entry `{}`", starts[entry_of(first)].name);
        if let Some(message) = difference(of_first, node, &place) {
            let help = "tensors of equal names in several entries are one tensor".to_owned();
            let at = ModelPart::Value(value);
            faults.push(ModelDiagnostic { at, message, help: Some(help) });
        }
        let replacement = rewriter.replacement(first)?;
        let new = rewriter.graph.node_mut(replacement);
        new.pinned = new.pinned.or(node.pinned);
        Some(replacement)
    });
    if !faults.is_empty() {
        return Err(faults);
    }
    let parameters = shared.graph.parameters().collect();
    Ok(Network { parameters, ..shared })
}

/// Returns how a tensor differs from the one with its name at an earlier place.
pub(crate) fn difference(first: &Node, other: &Node, place: &str) -> Option<String> {
    let kind = |it: &Node| match it.source {
        Source::Parameter(_) => "a parameter",
        Source::Buffer(_) => "a buffer",
        Source::State | Source::Input { .. } | Source::Operator(_) => "a state",
    };
    let init = |it: &Node| match it.source {
        Source::Parameter(init) | Source::Buffer(init) => Some(init),
        Source::State | Source::Input { .. } | Source::Operator(_) => None,
    };
    let name = &first.name;
    if kind(first) != kind(other) {
        return Some(format!("`{name}` is {} {place}, and {} here", kind(first), kind(other)));
    }
    if first.shape != other.shape {
        return Some(format!("`{name}` is {} {place}, and {} here", first.shape, other.shape));
    }
    if init(first) != init(other) {
        return Some(format!("`{name}` has other initial values {place}"));
    }
    let is_pinned_twice = first.pinned.is_some() && other.pinned.is_some();
    (is_pinned_twice && first.pinned != other.pinned)
        .then(|| format!("`{name}` is pinned to another tiling {place}"))
}
