//! The division of a reduction into tasks and pieces.

use super::N_SHORT_SUM;

/// The minimum number of points of a piece of a task.
const PIECE: usize = 16 * 1024;
/// The maximum number of pieces of a task.
const MAX_PIECES: usize = 32;

/// The sizes that assign points to tasks.
pub(super) struct TaskShape {
    pub(super) kept: Vec<usize>,
    pub(super) kept_strides: Vec<usize>,
    pub(super) n_kept: usize,
    pub(super) n_reduced: usize,
    pub(super) row: usize,
    pub(super) row_stride: usize,
    pub(super) is_row_kept: bool,
    /// The number of neighbors in a row that are combined into one result at last; 1 if none are.
    pub(super) group: usize,
    pub(super) n_blocks: usize,
    pub(super) block: usize,
    /// The number of pieces of the units of a task.
    pub(super) n_pieces: usize,
}

impl TaskShape {
    pub(super) const fn n_tasks(&self) -> usize {
        if self.is_row_kept { self.n_kept * self.n_blocks } else { self.n_kept }
    }

    pub(super) const fn n_units(&self) -> usize {
        if self.is_row_kept { self.n_reduced } else { self.n_reduced * self.n_blocks }
    }

    /// Returns this shape with its tasks split into pieces.
    pub(super) fn in_pieces(self) -> Self {
        let length = self.block.min(self.row).max(1);
        let fewest = PIECE.div_ceil(length).max(if self.is_row_kept { N_SHORT_SUM } else { 1 });
        let most = (2 * MAX_PIECES / self.n_tasks().max(1)).min(self.n_units() / fewest);
        let n_pieces = most.clamp(1, MAX_PIECES);
        Self { n_pieces: 1 << n_pieces.ilog2(), ..self }
    }

    /// Returns the maximum number of results of a task, or of elements of groups.
    pub(super) fn width(&self) -> usize {
        if self.is_row_kept { self.block.min(self.row) } else { 1 }
    }

    /// Returns the kept point and the position in the row where a task begins, and its number of
    /// results, or of elements of groups.
    pub(super) fn task(&self, task: usize) -> (usize, usize, usize) {
        if !self.is_row_kept {
            return (task, 0, 1);
        }
        let at = task % self.n_blocks * self.block;
        (task / self.n_blocks, at, self.block.min(self.row - at))
    }
}
