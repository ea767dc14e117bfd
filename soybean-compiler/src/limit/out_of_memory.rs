//! The diagnostic of a model for which no plan fits into memory.

use std::fmt;

use soybean_plan::{Mesh, Shape, readable_bytes};

use super::column_generation::leanest;
use crate::{
    check,
    diagnostic::{ModelDiagnostic, ModelPart},
    network::Network,
    peak::{Content, Held, Peak},
    tiling::Strategy,
};

/// The number of larger numbers of ranks that are tried.
const N_TRIES: usize = 4;
/// The number of tensors that are named.
const N_NAMED: usize = 5;

/// A plan that does not fit.
pub(crate) struct OutOfMemory<'a> {
    pub(crate) network: &'a Network,
    pub(crate) mesh: Mesh,
    /// The memory of each rank in bytes.
    pub(crate) memory: u64,
    pub(crate) strategy: Strategy,
    /// The peak of the leanest plan found.
    pub(crate) peak: &'a Peak,
}

impl OutOfMemory<'_> {
    /// Returns the diagnostic: how much memory is needed, for what, and on how many GPUs the model
    /// fits.
    pub(crate) fn fault(&self, most_gpus: usize) -> ModelDiagnostic {
        let (plan, help) = match self.strategy {
            Strategy::Auto => ("the leanest plan found".to_owned(), self.gpus(most_gpus)),
            other => {
                let help = "strategy `auto` looks for plans that fit".to_owned();
                (format!("the plan of strategy `{}`", other.name()), help)
            }
        };
        let message = format!(
            "{plan} needs {} of memory on each of {} GPUs, which have {}\n  holding: {}\n  largest: {}",
            readable_bytes(self.peak.bytes()),
            self.mesh.n_ranks(),
            readable_bytes(self.memory),
            self.contents(),
            self.largest(),
        );
        ModelDiagnostic { at: ModelPart::Memory, message, help: Some(help) }
    }

    /// Lists the contents: `parameters 3.1 GB, activations 2.0 GB`
    fn contents(&self) -> String {
        let held = self.peak.by_content();
        let named = Content::NAMES.into_iter().filter(|(.., it)| held[it] > 0);
        let text = |(_, name, it)| format!("{name} {}", readable_bytes(held[&it]));
        named.map(text).collect::<Vec<_>>().join(", ")
    }

    /// Lists the largest tensors:
    /// ``parameters `w` [1024, 4096] 2.1 MB, 3 activations [64, 4096] 3.1 MB``
    fn largest(&self) -> String {
        let mut groups: Vec<TensorGroup<'_>> = Vec::new();
        for held in &self.peak.held {
            let Some(group) = self.group(held) else { continue };
            match groups.iter_mut().find(|it| it.is_equal(&group)) {
                Some(known) => {
                    known.n_tensors += 1;
                    known.bytes += group.bytes;
                }
                None => groups.push(group),
            }
        }
        groups.sort_by_key(|it| u64::MAX - it.bytes);
        groups.iter().take(N_NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    fn group(&self, held: &Held) -> Option<TensorGroup<'_>> {
        let node = self.network.graph.node(held.value?);
        let Held { content, bytes, .. } = *held;
        Some(TensorGroup { content, name: &node.name, shape: node.shape, n_tensors: 1, bytes })
    }

    /// Says on how many GPUs the model fits. A few multiples of the present number are tried.
    fn gpus(&self, most_gpus: usize) -> String {
        let n_gpus = self.mesh.n_ranks();
        let at_least = self.fewest_gpus().max(n_gpus + 1);
        let numbers = (2..).map(|it| it * n_gpus).take_while(|&it| it <= most_gpus);
        let keeps_pins =
            |n_gpus: usize| check::pins(&self.network.graph, &Mesh::new(n_gpus)).is_empty();
        let mut tried = numbers
            .filter(|&it| it >= at_least && has_small_factors(it) && keeps_pins(it))
            .take(N_TRIES);
        let fits = |n_gpus: &usize| {
            leanest(self.network, Mesh::new(*n_gpus), self.memory).bytes() <= self.memory
        };
        match tried.find(fits) {
            Some(n_gpus) => format!("it fits on {n_gpus} GPUs"),
            None => format!("it needs at least {at_least} GPUs, or a smaller batch"),
        }
    }

    /// Returns the number of ranks below which not even the persistent tensors fit.
    fn fewest_gpus(&self) -> usize {
        let graph = &self.network.graph;
        let stays = graph.values().filter(|&it| graph.operator(it).is_none());
        let bytes = |value| {
            let node = graph.node(value);
            (node.shape.n_elements() * node.dtype.bytes()) as u64
        };
        let fewest = stays.map(bytes).sum::<u64>().div_ceil(self.memory.max(1));
        usize::try_from(fewest).unwrap_or(usize::MAX)
    }
}

/// Returns whether a number of ranks has small prime factors only, as machines have.
fn has_small_factors(n_gpus: usize) -> bool {
    Mesh::new(n_gpus).sizes().all(|it| it <= 3)
}

/// Equal tensors in the message.
struct TensorGroup<'a> {
    content: Content,
    /// Empty for unnamed tensors, which are grouped together.
    name: &'a str,
    shape: Shape,
    n_tensors: usize,
    bytes: u64,
}

impl TensorGroup<'_> {
    fn is_equal(&self, other: &Self) -> bool {
        self.content == other.content && self.name == other.name && self.shape == other.shape
    }
}

impl fmt::Display for TensorGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.content {
            Content::Parameters => "parameter",
            Content::States => "state",
            Content::Inputs => "input",
            Content::Activations => "activation",
            Content::Gradients => "gradient",
            Content::Collectives => "collective",
            Content::Gaps => "gap",
        };
        let number =
            if self.n_tensors > 1 { format!("{} x ", self.n_tensors) } else { String::new() };
        let name = if self.name.is_empty() { String::new() } else { format!(" `{}`", self.name) };
        write!(f, "{number}{kind}{name} {} {}", self.shape, readable_bytes(self.bytes))
    }
}
