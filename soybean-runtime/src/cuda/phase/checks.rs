//! Checks that the next values of parameters, buffers and states are finite.
//!
//! Maps compute nearly all of them, and check them while they are in registers. What another kernel
//! computes is read again.

use std::ops::Range;

use soybean_codegen::{Address, CheckedResult};
use soybean_plan::{BufferId, Kernel, Map, NextValue, ScalarProgram, Shape, Step, Strides, Tables};

use super::{PhaseBuilder, TaskQueue};
use crate::{Error, state};

impl PhaseBuilder<'_> {
    /// Returns the results of a map that must be finite, with the numbers of their next values.
    pub(super) fn checks(&self, step: &Step) -> Vec<(usize, CheckedResult)> {
        let results = step.results.iter().enumerate();
        let checks = results.filter_map(|(result, buffer)| {
            let next_values = self.tables.next_values.iter();
            let number = next_values.clone().position(|it| it.buffer == *buffer)?;
            let mut befores = next_values.filter(|it| it.buffer == *buffer).map(|it| it.before);
            let before = befores.find_map(|it| self.operand_before(step, result, it?));
            let gaps = gaps(self.tables, self.tables.next_values[number]);
            Some((number, CheckedResult { result, before, gaps }))
        });
        checks.collect()
    }

    /// Returns the operand of a map that is this buffer and has the element before at the place of
    /// each element of a result.
    fn operand_before(&self, step: &Step, result: usize, before: BufferId) -> Option<Address> {
        if step.results[result] == before {
            return Some(Address::Result(result));
        }
        let Kernel::Map(Map { extents, inputs, .. }) = &self.kernels[step.kernel] else {
            return None;
        };
        let dense = extents.dense_strides();
        let is_before =
            |(buffer, strides): (&BufferId, &Strides)| *buffer == before && *strides == dense;
        step.inputs.iter().zip(&**inputs).position(is_before).map(Address::Input)
    }

    /// Queues maps that read those of these buffers that must be finite.
    pub(super) fn queue_checks(
        &mut self,
        buffers: &[BufferId],
        queue: &mut TaskQueue,
    ) -> Result<(), Error> {
        let next_values = self.tables.next_values.iter();
        let checked =
            buffers.iter().filter(|it| next_values.clone().any(|next| next.buffer == **it));
        for &buffer in checked {
            let extents = Shape::new(&[self.tables.buffers[buffer].n_elements]);
            let inputs = vec![extents.dense_strides()].into();
            let map = Map { extents, inputs, program: ScalarProgram::identity() };
            let kernel = Kernel::Map(map).number_in(&mut self.kernels);
            let step = Step { kernel, inputs: vec![buffer], results: vec![buffer] };
            self.queue(&step, queue)?;
        }
        Ok(())
    }
}

/// A tensor whose next value a joined update writes, and the elements at which it does so.
struct Member {
    tensor: BufferId,
    elements: Range<usize>,
}

/// Returns the tensors whose next values a joined update writes side by side into a buffer, in
/// their order; none for the next value of a single tensor.
fn members(tables: &Tables, next: NextValue) -> Vec<Member> {
    let is_tensor = |buffer: BufferId| state::tensors(tables).any(|it| it.buffer == buffer);
    if is_tensor(next.tensor) {
        return Vec::new();
    }
    let (joined, range) = (tables.buffers[next.buffer], tables.range(next.buffer));
    let element = |offset: usize| (offset - joined.offset) / joined.dtype.bytes();
    let member = |it: &NextValue| {
        let own = tables.range(it.buffer);
        let is_member = is_tensor(it.tensor) && range.start <= own.start && own.end <= range.end;
        let elements = || element(own.start)..element(own.end);
        is_member.then(|| Member { tensor: it.tensor, elements: elements() })
    };
    let mut members: Vec<Member> = tables.next_values.iter().filter_map(member).collect();
    members.sort_by_key(|it| it.elements.start);
    members
}

/// Returns the elements of a joined update between its tensors.
fn gaps(tables: &Tables, next: NextValue) -> Vec<Range<usize>> {
    let members = members(tables, next);
    let ends = members.iter().map(|it| it.elements.end);
    let starts = members.iter().skip(1).map(|it| it.elements.start);
    let starts = starts.chain([tables.buffers[next.buffer].n_elements]);
    ends.zip(starts).map(|(end, start)| end..start).filter(|it| !it.is_empty()).collect()
}

/// Returns the buffer of the first tensor whose next value was not finite, from the words of all
/// next values at the end of a step.
pub(crate) fn first_non_finite(tables: &Tables, words: &[u32]) -> Option<BufferId> {
    let (next, word) = tables.next_values.iter().zip(words).find(|it| *it.1 > 0)?;
    let element = (u32::MAX - word) as usize;
    let mut members = members(tables, *next).into_iter();
    let found = members.find(|it| it.elements.contains(&element));
    Some(found.map_or(next.tensor, |it| it.tensor))
}
