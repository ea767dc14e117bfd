//! Liveness of the memory of buffers.

use std::ops::Range;

use soybean_plan::{BufferId, DType, Tables, TrainingStep};

use super::Fuser;

impl Fuser<'_> {
    /// Returns the steps that read what the step `writer` writes to the buffer. `None` if the
    /// content is needed after the last step.
    pub(super) fn readers(&self, writer: usize, buffer: BufferId) -> Option<Vec<usize>> {
        let mut live = vec![self.range(buffer)];
        let mut readers = Vec::new();
        for at in writer + 1..self.fused.steps.len() {
            if live.is_empty() {
                break;
            }
            if live.iter().any(|range| self.reads(at, range)) {
                readers.push(at);
            }
            for written in self.fused.steps[at].results() {
                let written = self.range(written);
                live = live.iter().flat_map(|it| subtract(it, &written)).collect();
            }
        }
        let is_wanted = !live.is_empty() && is_live_at_end(self.tables, buffer);
        (!is_wanted).then_some(readers)
    }

    pub(super) fn is_unchanged(&self, buffer: BufferId, steps: Range<usize>) -> bool {
        let range = self.range(buffer);
        steps.into_iter().all(|at| !self.writes(at, &range))
    }

    pub(super) fn reads(&self, at: usize, range: &Range<usize>) -> bool {
        self.fused.steps[at].inputs().iter().any(|it| overlaps(range, &self.range(*it)))
    }

    pub(super) fn writes(&self, at: usize, range: &Range<usize>) -> bool {
        self.fused.steps[at].results().iter().any(|it| overlaps(range, &self.range(*it)))
    }

    pub(super) fn range(&self, buffer: BufferId) -> Range<usize> {
        let buffer = &self.tables.buffers[buffer];
        buffer.offset..buffer.offset + buffer.n_elements * buffer.dtype.bytes()
    }

    pub(super) fn dtype(&self, buffer: BufferId) -> DType {
        self.tables.buffers[buffer].dtype
    }
}

/// Returns true if the content of the buffer is needed after the last step.
fn is_live_at_end(tables: &Tables, buffer: BufferId) -> bool {
    let inputs = tables.inputs.iter().map(|it| it.buffer);
    let parameters = tables.parameters.iter().map(|it| it.buffer);
    let states = tables.states.iter().map(|it| it.buffer);
    let constants = tables.constants.iter().map(|it| it.buffer);
    let training = tables.entries.iter().filter_map(|it| it.training.as_ref());
    let left = training.flat_map(TrainingStep::left).chain(tables.accumulate_loss);
    let outputs = tables.outputs.iter().map(|it| it.buffer).chain(left);
    let mut all = inputs.chain(parameters).chain(states).chain(constants).chain(outputs);
    all.any(|it| it == buffer)
}

pub(super) fn overlaps(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Returns the parts of a range outside another range.
fn subtract(range: &Range<usize>, gone: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let parts = [range.start..range.end.min(gone.start), range.start.max(gone.end)..range.end];
    parts.into_iter().filter(|it| it.start < it.end)
}
