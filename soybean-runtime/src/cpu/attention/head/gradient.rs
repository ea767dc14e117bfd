//! The gradients of attention of one head, block by block.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use super::{Block, Head, Sizes, Statistics, Thread, Written, clear, clear_hidden, dense};
use crate::cpu::{attention::rows::SoftmaxGradient, product::Workspace};

impl Sizes {
    /// Computes gradients of one head of keys: of queries for these blocks of its heads of queries,
    /// one head after another, and the contribution of these blocks to those of keys and values.
    /// `head` and `to` have the first head of queries.
    ///
    /// # Safety
    /// The pointers refer to the elements of a head. Nothing else writes to keys, values and the
    /// queries of the blocks.
    pub(in crate::cpu::attention) unsafe fn gradients(
        &self,
        thread: &mut Thread<'_>,
        head: Head,
        to: Written,
        blocks: impl Iterator<Item = usize>,
    ) {
        for (to, columns) in [(to.key, self.features), (to.value, self.width)] {
            if let Some(to) = to {
                // SAFETY: required of the caller.
                unsafe { clear(to, self.keys, columns) };
            }
        }
        let n_blocks = self.n_blocks();
        for number in blocks {
            let (member, number) = (number / n_blocks, number % n_blocks);
            let query = to.query.map(|it| it.from(0, member * self.distances.results));
            let (head, to) = (self.member(head, member), Written { query, ..to });
            // SAFETY: required of the caller.
            unsafe { self.gradient(thread, head, to, number) };
        }
    }

    /// Computes the gradients of one block of a head of queries.
    ///
    /// # Safety
    /// As [`Self::gradients`].
    unsafe fn gradient(&self, thread: &mut Thread<'_>, head: Head, to: Written, number: usize) {
        let block = self.block(thread.workspace, &head, number);
        // SAFETY: required of the caller.
        let visible = unsafe { self.visible_keys(&block) };
        if visible.is_empty() {
            let Some(to) = to.query else { return };
            let to = to.from(block.queries.start, 0);
            // SAFETY: required of the caller.
            return unsafe { clear(to, block.queries.len(), self.features) };
        }
        for keys in self.key_blocks(&visible) {
            // SAFETY: required of the caller.
            unsafe { self.scores_and_gradients(thread, &block, &keys, head) };
            for row in 0..block.queries.len() {
                // SAFETY: the block has the row.
                unsafe { self.update_softmax(&block, row, &keys) };
                // SAFETY: as above.
                unsafe { self.add_products(&block, row, &keys) };
            }
        }
        let is_whole = self.key_blocks(&visible).nth(1).is_none();
        for keys in self.key_blocks(&visible) {
            if !is_whole {
                // SAFETY: required of the caller.
                unsafe { self.scores_and_gradients(thread, &block, &keys, head) };
            }
            for row in 0..block.queries.len() {
                if !is_whole {
                    // SAFETY: the block has the row, whose maximum is final.
                    unsafe { self.exponentiate(&block, row, &keys) };
                }
                // SAFETY: as above.
                unsafe { self.softmax_gradient(&block, row, &keys) };
            }
            let keys = (&keys, visible.start);
            // SAFETY: required of the caller.
            unsafe { self.add_gradients(thread.workspace, &block, keys, head, to) };
        }
    }

    /// Computes the scores of a block, and the gradients of its weights.
    ///
    /// # Safety
    /// As [`Self::gradients`].
    unsafe fn scores_and_gradients(
        &self,
        thread: &mut Thread<'_>,
        block: &Block,
        keys: &Range<usize>,
        Head { query, key, value, gradient, .. }: Head,
    ) {
        // SAFETY: required of the caller; the block has the memory.
        unsafe {
            self.scores(thread.workspace, block, keys, (query, key, self.features), block.weights);
        };
        // SAFETY: as above.
        unsafe { self.apply_function(thread, block, keys) };
        let operands = (gradient, value, self.width);
        // SAFETY: as above.
        unsafe { self.scores(thread.workspace, block, keys, operands, block.gradients) };
    }

    /// Adds the products of a row's weights and their gradients to its statistics.
    ///
    /// # Safety
    /// As [`Self::exponentiate`], which was called for the row.
    unsafe fn add_products(&self, block: &Block, row: usize, keys: &Range<usize>) {
        // SAFETY: required of the caller.
        let visible = unsafe { self.visible(block, row, keys) };
        let at = row * keys.len() + visible.start;
        let (weights, gradients) =
            (block.weights.wrapping_add(at), block.gradients.wrapping_add(at));
        let mut sum = 0.0;
        // SAFETY: as above.
        unsafe { (self.rows.dot)(weights, gradients, visible.len(), &mut sum) };
        // SAFETY: as above.
        unsafe { block.of_row(row).product += sum };
    }

    /// Replaces a row's gradients of weights by gradients of products, and normalizes its weights.
    ///
    /// # Safety
    /// As [`Self::add_products`], which was called for all keys.
    unsafe fn softmax_gradient(&self, block: &Block, row: usize, keys: &Range<usize>) {
        let at = row * keys.len();
        let (weights, gradients) =
            (block.weights.wrapping_add(at), block.gradients.wrapping_add(at));
        // SAFETY: required of the caller.
        let visible = unsafe { self.visible(block, row, keys) };
        // SAFETY: required of the caller.
        let Statistics { total, product, .. } = *unsafe { block.of_row(row) };
        let numbers = SoftmaxGradient { total, mean: product / total, scale: self.scale };
        let (seen, seen_gradients) =
            (weights.wrapping_add(visible.start), gradients.wrapping_add(visible.start));
        // SAFETY: as above.
        unsafe { (self.rows.softmax_gradient)(seen, seen_gradients, visible.len(), numbers) };
        // SAFETY: as above.
        unsafe { self.apply_slopes(block, at + visible.start, visible.len()) };
        // SAFETY: as above.
        unsafe { clear_hidden(gradients, &visible, keys.len()) };
    }

    /// Adds the contributions of a block to the gradients of queries, keys and values. Those of
    /// queries begin at the first of the keys that the block sees.
    ///
    /// # Safety
    /// As [`Self::gradients`].
    unsafe fn add_gradients(
        &self,
        workspace: &mut Workspace,
        block: &Block,
        (keys, first_key): (&Range<usize>, usize),
        Head { query, key, gradient, .. }: Head,
        to: Written,
    ) {
        let Self { features, width, .. } = *self;
        let (first, n_rows, n_keys) = (block.queries.start, block.queries.len(), keys.len());
        if let Some(to) = to.value {
            let left = gradient.from(first, 0).transposed();
            let result = to.from(keys.start, 0).transposed();
            let (sizes, right) = ((width, n_keys, n_rows), dense(block.weights, n_keys));
            // SAFETY: required of the caller.
            unsafe { workspace.multiply_add(sizes, left, right, result) };
        }
        let right = dense(block.gradients, n_keys);
        if let Some(to) = to.key {
            let left = query.from(first, 0).transposed();
            let result = to.from(keys.start, 0).transposed();
            let sizes = (features, n_keys, n_rows);
            // SAFETY: required of the caller.
            unsafe { workspace.multiply_add(sizes, left, right, result) };
        }
        if let Some(to) = to.query {
            let left = key.from(keys.start, 0).transposed();
            let result = to.from(first, 0).transposed();
            let sizes = (features, n_rows, n_keys);
            // SAFETY: required of the caller.
            unsafe {
                workspace.product(sizes, left, right.transposed(), result, keys.start > first_key);
            };
        }
    }
}
