//! The memory that steps read and write.

use std::ops::Range;

use soybean_plan::{BufferId, Step, Tables, overlaps, without};

/// The steps of a phase and the bytes that they read and write.
pub(crate) struct Memory<'a> {
    pub(crate) steps: &'a [Step],
    pub(crate) tables: &'a Tables,
}

impl<'a> Memory<'a> {
    pub(crate) const fn new(steps: &'a [Step], tables: &'a Tables) -> Self {
        Self { steps, tables }
    }

    pub(crate) fn reads(&self, at: usize, range: &Range<usize>) -> bool {
        self.steps[at].inputs.iter().any(|it| overlaps(range, &self.tables.range(*it)))
    }

    pub(crate) fn writes(&self, at: usize, range: &Range<usize>) -> bool {
        self.steps[at].results.iter().any(|it| overlaps(range, &self.tables.range(*it)))
    }

    /// Returns the last of some steps that writes to a buffer's bytes.
    pub(crate) fn writer(&self, buffer: BufferId, steps: Range<usize>) -> Option<usize> {
        let range = self.tables.range(buffer);
        steps.rev().find(|at| self.writes(*at, &range))
    }

    /// Returns true if all bytes of a buffer come from this step, which writes to some of them.
    pub(crate) fn covers(&self, writer: usize, buffer: BufferId) -> bool {
        let range = self.tables.range(buffer);
        self.steps[writer].results.iter().any(|it| {
            let written = self.tables.range(*it);
            written.start <= range.start && range.end <= written.end
        })
    }

    /// Returns true if what a step writes to a buffer is read by a step that is not a member, or
    /// needed after the last step.
    pub(crate) fn is_needed(&self, members: &[usize], writer: usize, buffer: BufferId) -> bool {
        let mut live = vec![self.tables.range(buffer)];
        for at in writer + 1..self.steps.len() {
            if !members.contains(&at) && live.iter().any(|range| self.reads(at, range)) {
                return true;
            }
            for written in &self.steps[at].results {
                let written = self.tables.range(*written);
                live = live.iter().flat_map(|it| without(it, &written)).collect();
            }
            if live.is_empty() {
                return false;
            }
        }
        self.tables.is_live_at_end(buffer)
    }
}
