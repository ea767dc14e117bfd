//! Liveness of the memory of buffers.

use std::ops::Range;

use soybean_plan::{BufferId, DType, overlaps, without};

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
                live = live.iter().flat_map(|it| without(it, &written)).collect();
            }
        }
        let is_wanted = !live.is_empty() && self.tables.is_live_at_end(buffer);
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
        self.tables.range(buffer)
    }

    pub(super) fn dtype(&self, buffer: BufferId) -> DType {
        self.tables.buffers[buffer].dtype
    }
}
