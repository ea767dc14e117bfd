//! What a rank's memory holds at the moment at which it holds the most.

use std::collections::BTreeMap;

use crate::{
    graph::{Source, Value},
    network::Network,
    operator::Operator,
};

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// Trained tensors.
    Parameters,
    /// Tensors of the optimiser, and the model's buffers.
    States,
    /// The tensors of the batch, and constants.
    Inputs,
    /// What the forward computation gives.
    Activations,
    /// What the backward computation gives.
    Gradients,
    /// What collectives read and write besides the tensors as they are stored: partial sums, and copies in other tilings.
    Collectives,
    /// Memory between buffers that is free at the moment, but not in one piece when it was needed.
    Gaps,
}

impl Content {
    /// All contents, with their names in the plan's JSON and in its table.
    pub const NAMES: [(&'static str, &'static str, Self); 7] = [
        ("parameters", "parameters", Self::Parameters),
        ("states", "optimizer states", Self::States),
        ("inputs", "inputs", Self::Inputs),
        ("activations", "activations", Self::Activations),
        ("gradients", "gradients", Self::Gradients),
        ("collectives", "collectives", Self::Collectives),
        ("gaps", "gaps", Self::Gaps),
    ];
}

/// A buffer that memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The tensor of which it is a rank's part; none for what lies between buffers.
    pub value: Option<Value>,
    /// What it is for.
    pub content: Content,
    /// The bytes that it takes on a rank.
    pub bytes: u64,
}

/// What a rank's memory holds at the moment at which it holds the most; the bytes add up to the size of the arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// All that it holds, the largest first.
    pub held: Vec<Held>,
}

/// Whose part a buffer is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) value: Value,
    /// Whether it lies otherwise than the tensor is stored.
    pub(crate) is_converted: bool,
}

impl Peak {
    /// The peak at which these buffers are held, with what each takes.
    pub(crate) fn new(network: &Network, buffers: &[(Owner, u64)], arena_bytes: u64) -> Self {
        let is_forward = network.forward();
        let content = |owner: &Owner| match &network.graph.node(owner.value).source {
            Source::Parameter(_) => Content::Parameters,
            Source::Buffer(_) | Source::State => Content::States,
            Source::Input { .. } => Content::Inputs,
            Source::Operator(Operator::Iota(_)) => Content::Inputs,
            Source::Operator(_) if is_forward[owner.value.index()] => Content::Activations,
            Source::Operator(_) => Content::Gradients,
        };
        let held = |(owner, bytes): &(Owner, u64)| {
            let content = if owner.is_converted { Content::Collectives } else { content(owner) };
            Held { value: Some(owner.value), content, bytes: *bytes }
        };
        let mut held: Vec<Held> = buffers.iter().map(held).collect();
        let total: u64 = held.iter().map(|it| it.bytes).sum();
        if arena_bytes > total {
            held.push(Held { value: None, content: Content::Gaps, bytes: arena_bytes - total });
        }
        held.sort_by_key(|it| (u64::MAX - it.bytes, it.value));
        Self { held }
    }

    /// The bytes on a rank: the size of the program's arena.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.held.iter().map(|it| it.bytes).sum()
    }

    /// The bytes of each content, zeros among them.
    #[must_use]
    pub fn by_content(&self) -> BTreeMap<Content, u64> {
        let mut bytes: BTreeMap<Content, u64> =
            Content::NAMES.into_iter().map(|(.., it)| (it, 0)).collect();
        for held in &self.held {
            *bytes.entry(held.content).or_default() += held.bytes;
        }
        bytes
    }
}
