//! Attention of one head, block by block.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

mod gradient;
pub(super) mod layout;
pub(super) mod mask;
pub(super) mod score;

use std::ops::Range;

use soybean_plan::{Attention, AttentionBias, AttentionForm};

use self::{
    layout::{Distances, clear},
    mask::Mask,
    score::{ScoreLoops, ScoreScratch},
};
use super::rows::Rows;
use crate::cpu::{
    isa::Isa,
    product::{Matrix, N_SPARE, Workspace},
};

/// Maximum number of queries in a block.
const MAX_QUERIES: usize = 256;
/// Maximum number of queries in a block of causal attention, which needs only half of the scores
/// within a block.
const MAX_CAUSAL_QUERIES: usize = 64;
/// With fewer queries in a block, packing its keys costs more than processing all keys at once
/// saves.
const MIN_QUERIES: usize = 64;
/// Numbers per query of a block, as in [`Statistics`].
const N_STATISTICS: usize = size_of::<Statistics>() / size_of::<f32>();
/// Number of scores that fit in the spare memory.
const N_SCORES: usize = N_SPARE - N_STATISTICS * MAX_QUERIES;

/// Sizes of a head and of its blocks.
pub(super) struct Sizes {
    /// Heads of queries for each head of keys.
    pub(super) group: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) features: usize,
    pub(super) width: usize,
    form: AttentionForm,
    is_causal: bool,
    window: Option<usize>,
    halo: Option<usize>,
    pub(super) bias: Option<AttentionBias>,
    /// The function of scores.
    pub(super) score: Option<ScoreLoops>,
    /// The factor of products.
    scale: f32,
    /// The factor of what is in a row of scores when it is masked: 1 after a function.
    row_scale: f32,
    block_queries: usize,
    block_keys: usize,
    distances: Distances,
    rows: Rows,
}

/// Operands of one head.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) query: Matrix,
    pub(super) key: Matrix,
    pub(super) value: Matrix,
    /// Gradient of the result, for gradients only.
    pub(super) gradient: Matrix,
    /// The positions of the queries, if they are only some of the sequence and are read: of the
    /// first query alone if there is a halo.
    pub(super) positions: Option<*const i32>,
    /// The segments and the bias.
    pub(super) mask: Mask,
}

/// Destinations of the gradients of one head that are wanted.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub(super) query: Option<Matrix>,
    pub(super) key: Option<Matrix>,
    pub(super) value: Option<Matrix>,
}

/// The memory of one thread.
pub(super) struct Thread<'a> {
    pub(super) workspace: &'a mut Workspace,
    /// That of the function of scores, if there is one.
    pub(super) score: Option<&'a mut ScoreScratch>,
}

/// Running softmax statistics of a query.
#[derive(Clone, Copy)]
#[repr(C)]
struct Statistics {
    /// Largest score so far.
    max_score: f32,
    /// Sum of the weights `exp(score - max_score)` so far.
    total: f32,
    /// Sum of the products of weights and their gradients so far.
    product: f32,
}

/// A block of queries and its spare memory.
struct Block {
    queries: Range<usize>,
    /// As in [`Head`].
    positions: Option<*const i32>,
    /// The number of keys before the first query, if they are only those around the queries.
    halo: Option<usize>,
    mask: Mask,
    /// Scores, later weights: a row for each query, a column for each key of a block.
    weights: *mut f32,
    /// Gradients of weights, later those of products.
    gradients: *mut f32,
    /// The slopes of the function of scores.
    slopes: *mut f32,
    statistics: *mut Statistics,
}

impl Block {
    /// Returns the statistics of a row.
    ///
    /// # Safety
    /// The block has this row, and nothing else refers to its statistics.
    #[expect(clippy::mut_from_ref, reason = "the statistics are in spare memory")]
    unsafe fn of_row(&self, row: usize) -> &mut Statistics {
        // SAFETY: required of the caller.
        unsafe { &mut *self.statistics.wrapping_add(row) }
    }

    /// Returns the position of the query of a row among the keys, or `None` if it is negative.
    ///
    /// # Safety
    /// The block has the row, and positions for all of its rows if it has any and no halo.
    unsafe fn position(&self, row: usize) -> Option<usize> {
        let number = self.queries.start + row;
        if let Some(halo) = self.halo {
            return Some(halo + number);
        }
        let Some(positions) = self.positions else { return Some(number) };
        // SAFETY: required of the caller.
        usize::try_from(unsafe { positions.wrapping_add(number).read() }).ok()
    }
}

/// Returns a matrix with dense rows of this length.
pub(super) const fn dense(start: *mut f32, row: usize) -> Matrix {
    Matrix { start, row, column: 1 }
}

impl Sizes {
    pub(super) fn new(attention: &Attention, isa: Isa) -> Self {
        let Attention { form, group, queries, keys, features, width, .. } = *attention;
        let Attention { is_causal, window, halo, scale, bias, .. } = *attention;
        let n_scores = match form {
            AttentionForm::Forward => N_SCORES,
            AttentionForm::Gradient
            | AttentionForm::QueryGradient
            | AttentionForm::KeyGradient
            | AttentionForm::ValueGradient => N_SCORES / 2,
        };
        let is_sparse = is_causal || attention.segments.is_some();
        let max_queries = if is_sparse { MAX_CAUSAL_QUERIES } else { MAX_QUERIES };
        // The keys that neighboring queries see.
        let n_seen = window.map_or(keys, |it| keys.min(it.saturating_add(MAX_CAUSAL_QUERIES - 1)));
        let is_one_block = n_seen <= n_scores / MIN_QUERIES;
        let block_keys = if is_one_block { n_seen.max(1) } else { n_scores / (2 * MIN_QUERIES) };
        #[expect(clippy::cast_possible_truncation, reason = "rounded to single precision")]
        let scale = scale as f32;
        let block_queries = (n_scores / block_keys).min(max_queries);
        Self {
            group,
            queries,
            keys,
            features,
            width,
            form,
            is_causal,
            window,
            halo,
            bias,
            score: ScoreLoops::new(attention, isa),
            scale,
            row_scale: if attention.score.is_some() { 1.0 } else { scale },
            block_queries,
            block_keys,
            distances: Distances::new(attention),
            rows: Rows::new(isa),
        }
    }

    /// Returns the number of blocks of queries of a head.
    pub(super) const fn n_blocks(&self) -> usize {
        self.queries.div_ceil(self.block_queries)
    }

    /// Returns the number of multiplications of a head of queries.
    pub(super) const fn n_products(&self) -> usize {
        let n_keys = match self.window {
            Some(window) if window < self.keys => window,
            Some(_) | None => self.keys,
        };
        self.queries * n_keys * (self.features + self.width)
    }

    /// Returns the numbers of elements of the gradients of keys and of values that are wanted.
    pub(super) const fn shared(&self) -> [usize; 2] {
        [
            if self.form.has_key_gradient() { self.keys * self.features } else { 0 },
            if self.form.has_value_gradient() { self.keys * self.width } else { 0 },
        ]
    }

    /// Returns the number of elements of the gradients of keys and values that are wanted.
    pub(super) const fn n_shared(&self) -> usize {
        let [of_keys, of_values] = self.shared();
        of_keys + of_values
    }

    /// Returns the operands of a head of queries in a group, given those of the first.
    pub(super) const fn member(&self, first: Head, number: usize) -> Head {
        let mask = Mask { head: first.mask.head + number, ..first.mask };
        let query = first.query.from(0, number * self.distances.queries);
        let gradient = first.gradient.from(0, number * self.distances.gradients);
        Head { query, gradient, mask, ..first }
    }

    fn block(&self, workspace: &Workspace, head: &Head, number: usize) -> Block {
        let first = number * self.block_queries;
        let weights = workspace.spare();
        let block = Block {
            queries: first..self.queries.min(first + self.block_queries),
            positions: head.positions,
            halo: self.halo,
            mask: head.mask,
            weights,
            gradients: weights.wrapping_add(N_SCORES / 2),
            slopes: workspace.second_spare(),
            statistics: weights.wrapping_add(N_SCORES).cast(),
        };
        for row in 0..block.queries.len() {
            let nothing = Statistics { max_score: f32::NEG_INFINITY, total: 0.0, product: 0.0 };
            // SAFETY: the spare memory holds that many elements.
            unsafe { block.statistics.wrapping_add(row).write(nothing) };
        }
        block
    }

    /// Returns blocks of these keys.
    fn key_blocks(&self, keys: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (length, end) = (self.block_keys, keys.end);
        keys.clone().step_by(length).map(move |first| first..end.min(first + length))
    }

    /// Returns the destinations of gradients: `query` for those of queries, `shared` for those of
    /// keys, and after them of values.
    pub(super) fn partial(&self, query: Option<Matrix>, shared: *mut f32) -> Written {
        let [of_keys, _] = self.shared();
        let Self { form, features, width, .. } = *self;
        let value = shared.wrapping_add(of_keys);
        Written {
            query,
            key: form.has_key_gradient().then(|| dense(shared, features)),
            value: form.has_value_gradient().then(|| dense(value, width)),
        }
    }

    /// Computes the results of a block of queries.
    ///
    /// # Safety
    /// The pointers refer to the elements of a head, and nothing else writes to those of the block.
    pub(super) unsafe fn forward(
        &self,
        thread: &mut Thread<'_>,
        head: Head,
        to: Matrix,
        number: usize,
    ) {
        let block = self.block(thread.workspace, &head, number);
        let to = to.from(block.queries.start, 0);
        let n_rows = block.queries.len();
        // SAFETY: required of the caller.
        let visible = unsafe { self.visible_keys(&block) };
        if visible.is_empty() {
            // SAFETY: required of the caller.
            return unsafe { clear(to, n_rows, self.width) };
        }
        for keys in self.key_blocks(&visible) {
            let is_first = keys.start == visible.start;
            let operands = (head.query, head.key, self.features);
            // SAFETY: required of the caller.
            unsafe { self.scores(thread.workspace, &block, &keys, operands, block.weights) };
            // SAFETY: as above.
            unsafe { self.apply_function(thread, &block, &keys) };
            for row in 0..n_rows {
                // SAFETY: the block has the row.
                let correction = unsafe { self.update_softmax(&block, row, &keys) };
                if correction != 1.0 && !is_first {
                    // SAFETY: required of the caller.
                    unsafe { (self.rows.scale)(to.from(row, 0).start, self.width, correction) };
                }
            }
            let left = head.value.from(keys.start, 0).transposed();
            let right = dense(block.weights, keys.len()).transposed();
            let sizes = (self.width, n_rows, keys.len());
            // SAFETY: required of the caller.
            unsafe { thread.workspace.product(sizes, left, right, to.transposed(), !is_first) };
        }
        for row in 0..n_rows {
            // SAFETY: the block has the row.
            let total = unsafe { block.of_row(row) }.total;
            // A query that sees no key has no weights.
            let share = if total == 0.0 { 0.0 } else { 1.0 / total };
            // SAFETY: required of the caller.
            unsafe { (self.rows.scale)(to.from(row, 0).start, self.width, share) };
        }
    }

    /// Multiplies the rows of two matrices: one for the queries of a block, one for some keys. Rows
    /// have `depth` elements.
    ///
    /// # Safety
    /// The matrices have these rows, and `to` holds a row of keys for each query.
    unsafe fn scores(
        &self,
        workspace: &mut Workspace,
        block: &Block,
        keys: &Range<usize>,
        (by_query, by_key, depth): (Matrix, Matrix, usize),
        to: *mut f32,
    ) {
        let (left, right) = (by_key.from(keys.start, 0), by_query.from(block.queries.start, 0));
        let sizes = (keys.len(), block.queries.len(), depth);
        let result = dense(to, keys.len()).transposed();
        // SAFETY: required of the caller.
        unsafe { workspace.multiply(sizes, left, right.transposed(), result) };
    }

    /// Replaces a row of scores by weights and returns their sum. Updates the maximum of the row.
    ///
    /// # Safety
    /// The block has the row, with scores for these keys.
    unsafe fn exponentiate(&self, block: &Block, row: usize, keys: &Range<usize>) -> f32 {
        let weights = block.weights.wrapping_add(row * keys.len());
        // SAFETY: required of the caller.
        let visible = unsafe { self.visible(block, row, keys) };
        // SAFETY: as above.
        let scale = unsafe { self.mask_row(block, row, (keys, &visible), weights) };
        // SAFETY: as above.
        let max_score = unsafe { &mut block.of_row(row).max_score };
        let (seen, n_seen, mut sum) = (weights.wrapping_add(visible.start), visible.len(), 0.0);
        // SAFETY: required of the caller.
        unsafe { (self.rows.exponentiate)(seen, n_seen, scale, max_score, &mut sum) };
        // SAFETY: as above.
        unsafe { clear_hidden(weights, &visible, keys.len()) };
        sum
    }

    /// Replaces a row of scores by weights and updates the statistics. Returns the factor that
    /// corrects earlier sums.
    ///
    /// # Safety
    /// As [`Self::exponentiate`].
    unsafe fn update_softmax(&self, block: &Block, row: usize, keys: &Range<usize>) -> f32 {
        // SAFETY: required of the caller.
        let before = unsafe { block.of_row(row) }.max_score;
        // SAFETY: as above.
        let sum = unsafe { self.exponentiate(block, row, keys) };
        // SAFETY: as above.
        let statistics = unsafe { block.of_row(row) };
        let is_same = before == statistics.max_score;
        let correction = if is_same { 1.0 } else { (before - statistics.max_score).exp() };
        statistics.total = statistics.total * correction + sum;
        statistics.product *= correction;
        correction
    }
}

/// Sets the elements of a row to 0, except the visible ones.
///
/// # Safety
/// The row has `n` elements, and the visible ones are among them.
#[inline]
unsafe fn clear_hidden(row: *mut f32, visible: &Range<usize>, n: usize) {
    // Short rows take less time than a call that clears nothing.
    if visible.start > 0 {
        // SAFETY: required of the caller.
        unsafe { row.write_bytes(0, visible.start) };
    }
    if visible.end < n {
        // SAFETY: as above.
        unsafe { row.wrapping_add(visible.end).write_bytes(0, n - visible.end) };
    }
}
