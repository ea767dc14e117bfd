//! Checks that the next values of parameters, buffers and states are finite.
//!
//! Maps and updates of embeddings compute nearly all of them, and check them while they are in
//! registers. What another kernel computes, such as the running statistics of a batch norm, is read
//! again.

use std::ops::Range;

use soybean_codegen::{Address, CheckedResult};
use soybean_plan::{
    BufferId, Instruction, Kernel, Map, NextValue, ScalarProgram, Shape, Step, Strides, Tables,
};

use super::{PhaseBuilder, TaskQueue};
use crate::{Error, state};

/// The most buffers that a map reads again.
const MOST_CHECKED: usize = 16;

impl PhaseBuilder<'_> {
    /// Returns the results of a kernel that must be finite, with the numbers of their next values.
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

    /// Lets those of these buffers that must be finite be read again: at the end of the phase if
    /// they are then as now.
    pub(super) fn check_later(
        &mut self,
        buffers: &[BufferId],
        queue: &mut TaskQueue,
    ) -> Result<(), Error> {
        for &buffer in buffers {
            let mut next_values = self.tables.next_values.iter();
            let Some(next) = next_values.find(|it| it.buffer == buffer) else { continue };
            if next.tensor == buffer {
                let n_elements = self.tables.buffers[buffer].n_elements;
                queue.unchecked.entry(n_elements).or_default().push(buffer);
            } else {
                self.queue_check(&[buffer], queue)?;
            }
        }
        Ok(())
    }

    /// Queues the checks that are left for the end of the phase, of several buffers of equal size
    /// at once.
    pub(super) fn queue_checks(&mut self, queue: &mut TaskQueue) -> Result<(), Error> {
        for buffers in std::mem::take(&mut queue.unchecked).into_values() {
            buffers.chunks(MOST_CHECKED).try_for_each(|it| self.queue_check(it, queue))?;
        }
        Ok(())
    }

    /// Queues a map that writes buffers of equal size as they are.
    fn queue_check(&mut self, buffers: &[BufferId], queue: &mut TaskQueue) -> Result<(), Error> {
        let extents = Shape::new(&[self.tables.buffers[buffers[0]].n_elements]);
        let inputs = vec![extents.dense_strides(); buffers.len()].into();
        let elements = (0..).take(buffers.len()).map(Instruction::Input).collect();
        let program =
            ScalarProgram { instructions: elements, results: (0..).take(buffers.len()).collect() };
        let kernel = Kernel::Map(Map { extents, inputs, program }).number_in(&mut self.kernels);
        let step = Step { kernel, inputs: buffers.to_vec(), results: buffers.to_vec() };
        self.queue(&step, queue)
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

#[cfg(test)]
mod tests {
    use soybean_plan::{Buffer, Combine, DType, Mesh, Reduction};

    use super::{
        super::{Action, CommunicationBackend, Fused, FusedStep},
        *,
    };

    // Guards: kernels other than maps, such as those of fused rows, write next values, too.
    #[test]
    fn next_values_of_other_kernels_are_read_again_together() {
        let mut tables = Tables::new("sums", Mesh::new(1));
        let buffer = |offset, n_elements| Buffer { offset, n_elements, dtype: DType::F32 };
        tables.buffers = vec![buffer(0, 32), buffer(256, 4), buffer(512, 4)].into();
        let next = |buffer| NextValue { buffer, before: Some(buffer), tensor: buffer };
        tables.next_values = vec![next(1), next(2)].into();
        let extents = Shape::new(&[4, 8]);
        let inputs = vec![extents.dense_strides()].into();
        let map = Map { extents, inputs, program: ScalarProgram::identity() };
        let sums = Reduction { map, combine: Combine::Sum, result: Strides::new(&[1, 0]) };
        let kernels = [Kernel::Reduce(sums)];
        let step = |result| Step { kernel: 0, inputs: vec![0], results: vec![result] };
        let steps = [1, 2].map(|it| FusedStep::Plain(step(it))).into();
        let mut builder = PhaseBuilder::new(&tables, &kernels, CommunicationBackend::PeerAccess);
        let fused = Fused { steps, slots: Vec::new() };
        let phase = builder.phase(&fused, &[]).expect("the tables are right");
        let Some(Action::Kernel(run)) = phase.tasks.last().map(|it| &it.action) else {
            panic!("expected a kernel at the end")
        };
        assert_eq!(phase.tasks.len(), 4, "the feed, two sums and one check");
        assert_eq!((&run.inputs, &run.results), (&vec![256, 512], &vec![256, 512]));
        assert_eq!(run.next_values, [0, 1]);
        let checked = builder.calls[run.call].checked.iter().map(|it| (it.result, it.before));
        let stored = |it| (it, Some(Address::Result(it)));
        assert_eq!(checked.collect::<Vec<_>>(), [stored(0), stored(1)]);
    }
}
