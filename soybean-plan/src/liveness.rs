//! The memory of buffers that share the arena over time.

use std::ops::Range;

use crate::{BufferId, Tables, TrainingStep};

impl Tables {
    /// Returns the bytes of a buffer in the arena.
    ///
    /// # Panics
    /// If there is no such buffer.
    #[must_use]
    pub fn range(&self, buffer: BufferId) -> Range<usize> {
        let buffer = &self.buffers[buffer];
        buffer.offset..buffer.offset + buffer.n_elements * buffer.dtype.bytes()
    }

    /// Returns true if the content of a buffer is needed after the last step.
    #[must_use]
    pub fn is_live_at_end(&self, buffer: BufferId) -> bool {
        let inputs = self.inputs.iter().map(|it| it.buffer);
        let parameters = self.parameters.iter().map(|it| it.buffer);
        let states = self.states.iter().map(|it| it.buffer);
        let constants = self.constants.iter().map(|it| it.buffer);
        let training = self.entries.iter().filter_map(|it| it.training.as_ref());
        let left = training.flat_map(TrainingStep::left).chain(self.accumulate_loss);
        let outputs = self.outputs.iter().map(|it| it.buffer).chain(left);
        let mut all = inputs.chain(parameters).chain(states).chain(constants).chain(outputs);
        all.any(|it| it == buffer)
    }
}

/// Returns true if two ranges of bytes share some.
#[must_use]
pub const fn overlaps(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Returns the parts of a range of bytes outside another range.
pub fn without(range: &Range<usize>, gone: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let parts = [range.start..range.end.min(gone.start), range.start.max(gone.end)..range.end];
    parts.into_iter().filter(|it| it.start < it.end)
}

/// The alignment in bytes of buffers. Lines of a GPU's cache have 128 bytes: images of 64 channels
/// in `bf16`, one line for each pixel, would take two.
pub const BUFFER_ALIGNMENT: usize = 256;

/// Returns the first aligned offset at which this many bytes are outside all ranges.
#[must_use]
pub fn first_gap(mut occupied: Vec<Range<usize>>, n_bytes: usize) -> usize {
    occupied.sort_unstable_by_key(|it| it.start);
    let mut offset: usize = 0;
    for range in occupied {
        if offset + n_bytes <= range.start {
            break;
        }
        offset = offset.max(range.end.next_multiple_of(BUFFER_ALIGNMENT));
    }
    offset
}
