//! Attention that reads and writes what permutations of heads would copy.
//!
//! Products give `[batch, rows, heads, columns]`, and attention computes `[batch, heads, rows,
//! columns]`. The kernels for GPUs take either order
//! ([`AttentionLayout`](soybean_plan::AttentionLayout)), so the tensors before and after such a
//! permutation become one. It lives as long as both together. Memory is already planned, so it may
//! get another place.

mod alternating;
mod value;

use std::{collections::BTreeMap, ops::Range};

use soybean_plan::{
    Attention, Buffer, BufferId, Kernel, Permutation, Step, Tables, first_gap, overlaps,
};

pub(crate) use self::value::occupied;
use self::{
    alternating::{Order, alternating},
    value::Value,
};
use crate::memory::Memory;

/// Returns the steps of a phase without the permutations of heads that attention can do by itself.
/// New kernels are appended to `kernels`, and tensors with a new place to the buffers; `moved` gets
/// each with the buffer that it had.
#[must_use]
pub fn fold_permutations(
    steps: &[Step],
    kernels: &mut Vec<Kernel>,
    tables: &mut Tables,
    moved: &mut BTreeMap<BufferId, BufferId>,
) -> Vec<Step> {
    let lasting = (0..tables.buffers.len()).filter(|it| tables.is_live_at_end(*it));
    let lasting: Vec<Range<usize>> = lasting.map(|it| tables.range(it)).collect();
    let mut steps = steps.to_vec();
    let mut at = 0;
    while at < steps.len() {
        let Some(fold) = Fold::of(&Memory::new(&steps, tables), kernels, at) else {
            at += 1;
            continue;
        };
        let n_buffers = tables.buffers.len();
        let place = fold.place(&steps, tables, &lasting);
        if place == n_buffers {
            let source = fold.source.buffer;
            moved.insert(place, moved.get(&source).copied().unwrap_or(source));
        }
        fold.apply(&mut steps, kernels, place);
    }
    steps
}

/// A permutation that attention can do by itself.
struct Fold {
    /// The step that permutes.
    at: usize,
    /// The value before the permutation, and the permuted one.
    source: Value,
    result: Value,
    /// The steps of attention, and their new kernels.
    attentions: Vec<(usize, Attention)>,
}

impl Fold {
    /// Returns the fold of the permutation at this step, if there is one.
    fn of(memory: &Memory<'_>, kernels: &[Kernel], at: usize) -> Option<Self> {
        let Step { kernel, inputs, results } = &memory.steps[at];
        let (Kernel::Permute(permutation), &[from], &[to]) =
            (kernels.get(*kernel)?, &inputs[..], &results[..])
        else {
            return None;
        };
        let size =
            |it: BufferId| (memory.tables.buffers[it].n_elements, memory.tables.buffers[it].dtype);
        let source = Value::new(memory, from, memory.writer(from, 0..at)?)?;
        let result = Value::new(memory, to, at)?;
        if size(from) != size(to) || !source.readers.contains(&at) {
            return None;
        }
        let attention = |step: usize| match kernels.get(memory.steps[step].kernel)? {
            Kernel::Attend(it) => Some(it),
            _ => None,
        };
        let writer = attention(source.writer).filter(|_| source.readers == [at]);
        let attentions: Vec<(usize, Attention)> = match writer {
            Some(it) => {
                let results = &memory.steps[source.writer].results;
                vec![(source.writer, with_result(it, permutation, results, from)?)]
            }
            None => {
                let reader = |&step: &usize| {
                    let inputs = &memory.steps[step].inputs;
                    Some((step, with_operand(attention(step)?, permutation, inputs, to)?))
                };
                result.readers.iter().map(reader).collect::<Option<_>>()?
            }
        };
        (!attentions.is_empty()).then_some(Self { at, source, result, attentions })
    }

    /// Returns a buffer for the value that replaces both: one of theirs, or a new one.
    fn place(&self, steps: &[Step], tables: &mut Tables, lasting: &[Range<usize>]) -> BufferId {
        let readers = self.source.readers.iter().chain(&self.result.readers);
        let last = readers.fold(self.at, |last, it| last.max(*it));
        let values = [&self.source, &self.result];
        let mut occupied = occupied(steps, tables, (self.source.writer, last), &values);
        occupied.extend_from_slice(lasting);
        let is_free = |it: &BufferId| {
            let range = tables.range(*it);
            !occupied.iter().any(|other| overlaps(other, &range))
        };
        let own = [self.result.buffer, self.source.buffer];
        own.into_iter().find(is_free).unwrap_or_else(|| {
            let n_bytes = tables.range(self.source.buffer).len();
            let offset = first_gap(occupied, n_bytes);
            tables.arena_bytes = tables.arena_bytes.max(offset + n_bytes);
            let buffers = tables.buffers.to_mut();
            buffers.push(Buffer { offset, ..buffers[self.source.buffer] });
            buffers.len() - 1
        })
    }

    /// Removes the permutation.
    fn apply(&self, steps: &mut Vec<Step>, kernels: &mut Vec<Kernel>, place: BufferId) {
        for (step, attention) in &self.attentions {
            steps[*step].kernel = Kernel::from(attention.clone()).number_in(kernels);
        }
        replace(&mut steps[self.source.writer].results, self.source.buffer, place);
        for value in [&self.source, &self.result] {
            for &reader in &value.readers {
                replace(&mut steps[reader].inputs, value.buffer, place);
            }
        }
        steps.remove(self.at);
    }
}

/// Returns attention that writes the permutation of a result.
fn with_result(
    attention: &Attention,
    permutation: &Permutation,
    results: &[BufferId],
    permuted: BufferId,
) -> Option<Attention> {
    let mut attention = attention.clone();
    let at = results.iter().position(|it| *it == permuted)?;
    let sizes = *attention.result_sizes().get(at)?;
    let number = &mut attention.layout.results[at];
    *number =
        alternating(permutation, attention.heads, sizes, Order::Rows).filter(|_| *number == 1)?;
    Some(attention)
}

/// Returns attention that reads an operand before its permutation, wherever it reads it.
fn with_operand(
    attention: &Attention,
    permutation: &Permutation,
    inputs: &[BufferId],
    permuted: BufferId,
) -> Option<Attention> {
    let mut attention = attention.clone();
    let sizes = attention.operand_sizes();
    for (at, _) in inputs.iter().enumerate().filter(|it| *it.1 == permuted) {
        let sizes = *sizes.get(at)?;
        let number = &mut attention.layout.operands[at];
        *number = alternating(permutation, attention.heads, sizes, Order::Heads)
            .filter(|_| *number == 1)?;
    }
    Some(attention)
}

fn replace(buffers: &mut [BufferId], old: BufferId, new: BufferId) {
    for it in buffers.iter_mut().filter(|it| **it == old) {
        *it = new;
    }
}

#[cfg(test)]
mod tests;
