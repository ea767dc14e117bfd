//! The contents of a rank's memory over the steps of a program: the buffers of the memory plan,
//! their purposes and their lifetimes.

use std::{cmp::Reverse, collections::BTreeMap};

use soybean_plan::BufferId;

use crate::{
    operator::Phase,
    peak::{Content, Held, Peak, by_content},
    unplaced::Storage,
    value::Value,
};

/// The lifetime of a buffer that is not kept: its first and last step in a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) buffer: BufferId,
    pub(crate) phase: Phase,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// All buffers, those that stay and the others with their lives.
#[derive(Clone, Debug)]
pub(crate) struct Holdings {
    /// The tensor of each buffer.
    values: Vec<Option<Value>>,
    persistent: Vec<Held>,
    transient: Vec<(Life, Held)>,
    arena_bytes: u64,
}

impl Holdings {
    /// Returns the holdings of a memory plan, given what each buffer holds.
    pub(crate) fn new(
        contents: &[Held],
        storage: &[Storage],
        lives: &[Life],
        arena_bytes: usize,
    ) -> Self {
        let held = |buffer: BufferId| contents[buffer];
        let persistent = (0..storage.len()).filter(|&it| storage[it].is_persistent);
        Self {
            values: contents.iter().map(|it| it.value).collect(),
            persistent: persistent.map(held).collect(),
            transient: lives.iter().map(|it| (*it, held(it.buffer))).collect(),
            arena_bytes: arena_bytes as u64,
        }
    }

    /// Returns the tensor of which each buffer holds a part.
    pub(crate) fn values(&self) -> &[Option<Value>] {
        &self.values
    }

    /// Returns the contents at the first step at which memory holds the most.
    pub(crate) fn peak(&self) -> Peak {
        // The sum rises only where a life begins.
        let mut changes: BTreeMap<(Phase, usize), i64> = BTreeMap::new();
        for (life, held) in &self.transient {
            let bytes = held.bytes.cast_signed();
            *changes.entry((life.phase, life.first)).or_default() += bytes;
            *changes.entry((life.phase, life.last + 1)).or_default() -= bytes;
        }
        let mut sum = 0;
        let most = changes.into_iter().map(|(moment, change)| {
            sum += change;
            (sum, Reverse(moment))
        });
        let peak = most.max().map(|(_, Reverse(moment))| moment);
        let is_live = |life: &Life| {
            peak.is_some_and(|(phase, at)| {
                life.phase == phase && (life.first..=life.last).contains(&at)
            })
        };
        let transient = self.transient.iter().filter(|it| is_live(&it.0)).map(|it| it.1);
        Peak::new(self.persistent.iter().copied().chain(transient).collect(), self.arena_bytes)
    }

    /// Returns the bytes of each content at each of the steps of a phase, without gaps.
    pub(crate) fn by_step(&self, phase: Phase, n_steps: usize) -> Vec<BTreeMap<Content, u64>> {
        let mut begin: Vec<Vec<&Held>> = vec![Vec::new(); n_steps];
        let mut end = begin.clone();
        for (life, held) in self.transient.iter().filter(|it| it.0.phase == phase) {
            begin[life.first].push(held);
            // Fetched buffers outlive the last step.
            if let Some(end) = end.get_mut(life.last) {
                end.push(held);
            }
        }
        let mut bytes = by_content(&self.persistent);
        let mut steps = Vec::with_capacity(n_steps);
        for (begin, end) in begin.iter().zip(&end) {
            for held in begin {
                *bytes.entry(held.content).or_default() += held.bytes;
            }
            steps.push(bytes.clone());
            for held in end {
                *bytes.entry(held.content).or_default() -= held.bytes;
            }
        }
        steps
    }
}
