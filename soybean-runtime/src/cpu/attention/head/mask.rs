//! The keys that queries of a head see, by positions and segments, and the bias of their scores.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use super::{Block, Sizes};

/// The keys that a head of queries sees, besides by positions.
#[derive(Clone, Copy)]
pub(in crate::cpu::attention) struct Mask {
    /// The number of the head of queries among all of the rank, which selects its matrix of the
    /// bias.
    pub(in crate::cpu::attention) head: usize,
    /// The numbers of heads that the function of scores reads.
    pub(in crate::cpu::attention) heads: Option<*const i32>,
    pub(in crate::cpu::attention) segments: Option<Segments>,
    /// The first matrix.
    pub(in crate::cpu::attention) bias: Option<*const f32>,
}

/// The segments of the queries and the keys of a head.
#[derive(Clone, Copy)]
pub(in crate::cpu::attention) struct Segments {
    pub(in crate::cpu::attention) queries: *const i32,
    pub(in crate::cpu::attention) keys: *const i32,
}

impl Segments {
    /// Returns the part of a range of keys that has all keys which these queries see, from the
    /// first to the last whose segment is between the least and the greatest of the queries.
    ///
    /// # Safety
    /// There are segments of these queries and keys.
    pub(super) unsafe fn keys_of(
        &self,
        queries: &Range<usize>,
        keys: Range<usize>,
    ) -> Range<usize> {
        // SAFETY: required of the caller.
        let of_queries = unsafe { elements(self.queries, queries) };
        // SAFETY: as above.
        let of_keys = unsafe { elements(self.keys, &keys) };
        let (low, high) = of_queries
            .iter()
            .fold((i32::MAX, i32::MIN), |(low, high), it| (low.min(*it), high.max(*it)));
        let is_between = |it: &i32| low <= *it && *it <= high;
        let Some(first) = of_keys.iter().position(is_between) else {
            return keys.start..keys.start;
        };
        let last = of_keys.iter().rposition(is_between).unwrap_or(first);
        keys.start + first..keys.start + last + 1
    }
}

/// # Safety
/// The elements exist, and nothing writes to them.
unsafe fn elements<'a>(first: *const i32, range: &Range<usize>) -> &'a [i32] {
    // SAFETY: required of the caller.
    unsafe { std::slice::from_raw_parts(first.wrapping_add(range.start), range.len()) }
}

/// Returns the number of keys of the halo of a block that lie before the sequence.
///
/// # Safety
/// The block has the position of the first query if it has a halo.
unsafe fn first_key(block: &Block) -> usize {
    let (Some(halo), Some(positions)) = (block.halo, block.positions) else { return 0 };
    // SAFETY: required of the caller.
    let first = unsafe { positions.read() };
    usize::try_from(first).map_or(0, |it| halo.saturating_sub(it))
}

impl Sizes {
    /// Returns the keys that are visible to the query of a row of causal attention.
    ///
    /// # Safety
    /// The block has the row, and positions for all of its rows if it has any.
    unsafe fn seen(&self, block: &Block, row: usize) -> Range<usize> {
        // SAFETY: required of the caller.
        let n_before = unsafe { block.position(row) }.map_or(0, |it| it + 1);
        let end = self.keys.min(n_before);
        let start = self.window.map_or(0, |it| n_before.saturating_sub(it));
        // SAFETY: as above.
        let start = start.max(unsafe { first_key(block) });
        start.min(end)..end
    }

    /// Returns the range of the keys that are visible to any query of a block.
    ///
    /// # Safety
    /// As [`Self::seen`].
    pub(super) unsafe fn visible_keys(&self, block: &Block) -> Range<usize> {
        let keys = if self.is_causal {
            // The last query sees the last keys; blocks are not empty.
            // SAFETY: required of the caller.
            let last = unsafe { self.seen(block, block.queries.len() - 1) };
            // SAFETY: as above.
            let first = unsafe { self.seen(block, 0) };
            first.start.min(last.end)..last.end
        } else {
            0..self.keys
        };
        let Some(segments) = block.mask.segments else { return keys };
        // SAFETY: required of the caller.
        unsafe { segments.keys_of(&block.queries, keys) }
    }

    /// Returns which of these keys are visible to the query of a row.
    ///
    /// # Safety
    /// As [`Self::seen`].
    pub(super) unsafe fn visible(
        &self,
        block: &Block,
        row: usize,
        keys: &Range<usize>,
    ) -> Range<usize> {
        if !self.is_causal {
            return 0..keys.len();
        }
        // SAFETY: required of the caller.
        let seen = unsafe { self.seen(block, row) };
        let of_block = |key: usize| key.clamp(keys.start, keys.end) - keys.start;
        of_block(seen.start)..of_block(seen.end)
    }

    /// Applies bias and segments to the visible scores of a row for these keys, whose first score
    /// is at `row_start`. Returns the factor that scores are still to be multiplied by.
    ///
    /// # Safety
    /// The block has the row, with scores for these keys.
    pub(super) unsafe fn mask_row(
        &self,
        block: &Block,
        row: usize,
        (keys, visible): (&Range<usize>, &Range<usize>),
        row_start: *mut f32,
    ) -> f32 {
        let Mask { head, segments, bias, .. } = block.mask;
        if segments.is_none() && bias.is_none() {
            return self.row_scale;
        }
        let (scores, n) = (row_start.wrapping_add(visible.start), visible.len());
        let (query, key) = (block.queries.start + row, keys.start + visible.start);
        match self.bias.zip(bias) {
            Some((sizes, bias)) => {
                let of_matrix = if sizes.rows == 1 { 0 } else { query };
                let row = sizes.matrix(head) * sizes.rows + of_matrix;
                let bias = bias.wrapping_add(row * self.keys + key);
                // SAFETY: required of the caller; the bias has a number for each score.
                unsafe { (self.rows.add_bias)(scores, bias, n, self.row_scale) };
            }
            // SAFETY: required of the caller.
            None => unsafe { (self.rows.scale)(scores, n, self.row_scale) },
        }
        if let Some(Segments { queries, keys }) = segments {
            // SAFETY: required of the caller.
            let segment = unsafe { queries.wrapping_add(query).read() };
            // SAFETY: as above.
            unsafe { (self.rows.hide_others)(scores, keys.wrapping_add(key), n, segment) };
        }
        1.0
    }
}
