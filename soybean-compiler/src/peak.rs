//! The contents of a rank's memory at its peak.

use std::collections::BTreeMap;

use crate::value::Value;

/// The purpose of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// Trained tensors.
    Parameters,
    /// Tensors of the optimizer, and the model's buffers.
    States,
    /// The tensors of the batch, and constants.
    Inputs,
    /// Results of the forward computation.
    Activations,
    /// Results of the backward computation.
    Gradients,
    /// Operands and results of collectives besides the stored tensors: partial sums, and copies in
    /// other tilings.
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
    /// The tensor that it holds a part of; `None` for gaps between buffers.
    pub value: Option<Value>,
    /// Its purpose.
    pub content: Content,
    /// The bytes that it takes on a rank.
    pub bytes: u64,
}

/// The contents of a rank's memory at its peak; the bytes add up to the size of the arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// All that it holds, the largest first.
    pub held: Vec<Held>,
}

impl Peak {
    /// Returns the peak with these contents in an arena of this size.
    pub(crate) fn new(mut held: Vec<Held>, arena_bytes: u64) -> Self {
        let total: u64 = held.iter().map(|it| it.bytes).sum();
        if arena_bytes > total {
            held.push(Held { value: None, content: Content::Gaps, bytes: arena_bytes - total });
        }
        held.sort_by_key(|it| (u64::MAX - it.bytes, it.value));
        Self { held }
    }

    /// Returns the bytes on a rank: the size of the program's arena.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.held.iter().map(|it| it.bytes).sum()
    }

    /// Returns the bytes of each content, zeros among them.
    #[must_use]
    pub fn by_content(&self) -> BTreeMap<Content, u64> {
        by_content(&self.held)
    }
}

/// Returns the bytes of each content, zeros among them.
pub(crate) fn by_content(held: &[Held]) -> BTreeMap<Content, u64> {
    let mut bytes: BTreeMap<Content, u64> =
        Content::NAMES.into_iter().map(|(.., it)| (it, 0)).collect();
    for held in held {
        *bytes.entry(held.content).or_default() += held.bytes;
    }
    bytes
}
