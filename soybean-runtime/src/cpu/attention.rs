//! Scaled dot-product attention and its gradients, a block of queries at a time, so that scores
//! never leave the cache. If even one block has too many keys, keys are split into blocks too, with
//! maxima and sums that are corrected from block to block.
//!
//! Source: algorithms 1 and 4 of Dao, Fu, Ermon, Rudra & Ré, "FlashAttention", 2022.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

mod check;
mod head;
mod rows;
mod team;

use std::ops::Range;

use soybean_plan::{Attention, AttentionForm, Combine, DType};

use self::{
    head::{
        Head, Sizes, Thread, Written,
        layout::matrix,
        mask::{Mask, Segments},
        score::ScoreScratch,
    },
    team::Team,
};
use super::{
    isa::Isa,
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    parallel::{N_PIECES, even_pieces, part_range},
    product::{Matrix, Workspace},
    region::Region,
    vector::{Accumulate, accumulate_each},
};
use crate::Error;

/// The number of multiply-adds that take the time of one operation of other kernels.
const PRODUCTS_PER_OPERATION: usize = 8;
/// The elements of a unit of work that adds up partial gradients.
const BLOCK: usize = 4096;
/// The minimum number of blocks of queries in a part of a head, because adding up the results of
/// parts takes time.
const FEWEST_BLOCKS: usize = 4;
/// The maximum number of elements of partial gradients at once, unless more are needed.
const N_PARTIAL: usize = 1 << 23;

/// A prepared [`Attention`].
pub(crate) struct AttentionKernel {
    heads: Heads,
    /// The memory of each thread for a function of scores.
    scores: Vec<Option<ScoreScratch>>,
}

/// The heads of a kernel, which all threads read.
struct Heads {
    attention: Attention,
    /// The number of elements of each input.
    inputs: Vec<usize>,
    /// The number of elements of each result.
    results: Vec<usize>,
    form: AttentionForm,
    /// The number of heads of keys and values.
    heads: usize,
    sizes: Sizes,
    /// The number of parts into which the queries of each head are split for gradients if there are
    /// few heads; 1 if there are enough. It does not depend on the number of threads.
    n_parts: usize,
    n_threads: usize,
    add: Accumulate,
}

impl Prepare for Attention {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(AttentionKernel::new(self, threads.isa, threads.len()))
    }
}

impl CpuKernel for AttentionKernel {
    fn n_scratch(&self) -> usize {
        self.heads.n_scratch()
    }

    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let Arguments { workspaces, scratch, inputs, results, .. } = arguments;
        // SAFETY: required of the caller.
        unsafe { self.run(workspaces, scratch, inputs, results) }
    }
}

impl AttentionKernel {
    pub(crate) fn new(attention: &Attention, isa: Isa, n_threads: usize) -> Self {
        let heads = Heads::new(attention, isa, n_threads);
        let scores = (0..n_threads).map(|_| heads.sizes.score_scratch()).collect();
        Self { heads, scores }
    }

    /// Runs the kernel on the inputs that [`Attention`] lists.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    ///
    /// # Panics
    /// Panics if there is not enough scratch space for partial gradients.
    pub(crate) unsafe fn run(
        &mut self,
        workspaces: &mut [Workspace],
        scratch: &mut [f32],
        inputs: &[Region],
        results: &[Region],
    ) -> Result<(), Error> {
        self.heads.check(inputs, results)?;
        let mut team = Team { workspaces, scores: &mut self.scores };
        // SAFETY: required of the caller; the regions have the elements that are needed.
        unsafe { self.heads.compute(&mut team, scratch, inputs, results) };
        Ok(())
    }
}

impl Heads {
    fn new(attention: &Attention, isa: Isa, n_threads: usize) -> Self {
        let Attention { form, heads, .. } = *attention;
        let sizes = Sizes::new(attention, isa);
        let n_blocks = sizes.group * sizes.n_blocks();
        let n_most = (N_PIECES / heads.max(1)).min(n_blocks / FEWEST_BLOCKS);
        let of_heads = |lengths: Vec<usize>| lengths.into_iter().map(move |it| heads * it);
        let masks = attention.mask_lengths();
        Self {
            attention: attention.clone(),
            inputs: of_heads(attention.input_lengths()).chain(masks).collect(),
            results: of_heads(attention.result_lengths()).collect(),
            form,
            heads,
            sizes,
            n_parts: even_pieces(n_most),
            n_threads,
            add: accumulate_each(Combine::Sum, isa),
        }
    }

    fn n_scratch(&self) -> usize {
        let n_shared = self.sizes.n_shared();
        match self.form {
            AttentionForm::Forward => 0,
            _ if self.shares_parts() => self.n_at_once() * (self.n_parts - 1) * n_shared,
            _ if self.n_parts > 1 => self.n_threads * n_shared,
            _ => 0,
        }
    }

    /// Returns true if there are too few heads for all threads, so that they share the parts of
    /// each head. The result of a part is the same either way.
    const fn shares_parts(&self) -> bool {
        let Self { heads, n_threads, .. } = *self;
        self.n_parts > 1 && heads < 4 * n_threads && !heads.is_multiple_of(n_threads)
    }

    /// Returns the number of heads whose parts threads share at once.
    fn n_at_once(&self) -> usize {
        let n_partial = (self.n_parts - 1) * self.sizes.n_shared();
        (N_PARTIAL / n_partial.max(1)).clamp(1, self.heads.max(1))
    }

    /// Computes the results.
    ///
    /// # Safety
    /// As [`AttentionKernel::run`]; the regions have the elements that are needed.
    unsafe fn compute(
        &self,
        team: &mut Team<'_>,
        scratch: &mut [f32],
        inputs: &[Region],
        results: &[Region],
    ) {
        let (n_heads, n_blocks) = (self.heads * self.sizes.group, self.sizes.n_blocks());
        let work = n_heads * self.sizes.n_products() / PRODUCTS_PER_OPERATION;
        match self.form {
            AttentionForm::Forward => {
                team.run(n_heads * n_blocks, work, |thread, units| {
                    for unit in units {
                        let (head, number) = (unit / n_blocks, unit % n_blocks);
                        let (from, to) =
                            (self.query_head(inputs, head), self.result(results, head));
                        let block = in_turn(number, n_blocks);
                        // SAFETY: required of the caller; units write different elements.
                        unsafe { self.sizes.forward(thread, from, to, block) };
                    }
                });
            }
            AttentionForm::Gradient
            | AttentionForm::QueryGradient
            | AttentionForm::KeyGradient
            | AttentionForm::ValueGradient => {
                let scratch = &mut scratch[..self.n_scratch()];
                let (pointer, n_elements) = (scratch.as_mut_ptr(), scratch.len());
                let partial = Region { pointer, n_elements, dtype: DType::F32 };
                // SAFETY: as above; the scratch space holds the results of all parts.
                unsafe { self.gradients(team, partial, inputs, results, 3 * work) };
            }
        }
    }

    /// Computes the gradients of all heads. Each part of the queries of a head gives gradients of
    /// keys and values, which are then added up in their order.
    ///
    /// # Safety
    /// As [`Self::compute`]; there are [`Self::n_scratch`] elements of scratch space.
    unsafe fn gradients(
        &self,
        team: &mut Team<'_>,
        scratch: Region,
        inputs: &[Region],
        results: &[Region],
        work: usize,
    ) {
        if !self.shares_parts() {
            let n_threads = team.workspaces.len();
            return team.run(n_threads, work, |thread, numbers| {
                for (number, head) in numbers.flat_map(|it| {
                    part_range(self.heads, it, n_threads).map(move |head| (it, head))
                }) {
                    let partial = scratch.at(number * self.sizes.n_shared());
                    for part in 0..self.n_parts {
                        // SAFETY: required of the caller; threads have different heads and separate
                        // scratch space.
                        unsafe { self.part(thread, inputs, results, (head, part), partial) };
                        if part > 0 {
                            let to = self.written(results, head);
                            // SAFETY: as above.
                            unsafe { self.add_partial(to, partial, 0..self.sizes.n_shared()) };
                        }
                    }
                }
            });
        }
        let n_at_once = self.n_at_once();
        for first in (0..self.heads).step_by(n_at_once) {
            let heads = first..self.heads.min(first + n_at_once);
            // SAFETY: required of the caller.
            unsafe { self.in_parts(team, scratch, inputs, results, heads) };
        }
    }

    /// Computes the gradients of some heads, whose parts are shared.
    ///
    /// # Safety
    /// As [`Self::gradients`].
    unsafe fn in_parts(
        &self,
        team: &mut Team<'_>,
        scratch: Region,
        inputs: &[Region],
        results: &[Region],
        heads: Range<usize>,
    ) {
        let (n_parts, n) = (self.n_parts, self.sizes.n_shared());
        let partial = |head: usize, part: usize| {
            scratch.at(((head - heads.start) * (n_parts - 1) + part.saturating_sub(1)) * n)
        };
        let n_products = self.sizes.group * self.sizes.n_products();
        let work = heads.len() * 3 * n_products / PRODUCTS_PER_OPERATION;
        team.run(heads.len() * n_parts, work, |thread, units| {
            for unit in units {
                let (head, part) = (heads.start + unit / n_parts, unit % n_parts);
                let to = partial(head, part);
                // SAFETY: required of the caller; parts write different elements.
                unsafe { self.part(thread, inputs, results, (head, part), to) };
            }
        });
        let n_blocks = n.div_ceil(BLOCK);
        team.run(heads.len() * n_blocks, heads.len() * n * n_parts, |_, units| {
            for unit in units {
                let (head, block) = (heads.start + unit / n_blocks, unit % n_blocks * BLOCK);
                let to = self.written(results, head);
                for part in 1..n_parts {
                    let elements = block..n.min(block + BLOCK);
                    // SAFETY: each part has these elements, and so have the results.
                    unsafe { self.add_partial(to, partial(head, part), elements) };
                }
            }
        });
    }

    /// Adds some elements of the partial gradients of keys and values to the results.
    ///
    /// # Safety
    /// The partial gradients and the results have these elements, and nobody else uses them.
    unsafe fn add_partial(&self, to: Written, from: *const f32, elements: Range<usize>) {
        let mut start = 0;
        let columns = [self.sizes.features, self.sizes.width];
        for ((to, n), columns) in
            [to.key, to.value].into_iter().zip(self.sizes.shared()).zip(columns)
        {
            let Some(to) = to else { continue };
            // Dense rows are as good as one.
            let columns = if to.row == columns { n } else { columns };
            let (mut at, end) = (elements.start.max(start), elements.end.min(start + n));
            while at < end {
                let (row, column) = ((at - start) / columns, (at - start) % columns);
                let length = (end - at).min(columns - column);
                let to = to.from(row, column).start;
                // SAFETY: required of the caller.
                unsafe { (self.add)(to, from.wrapping_add(at), length) };
                at += length;
            }
            start += n;
        }
    }

    /// Computes the gradients from a part of the queries of a head of keys. The first part writes
    /// those of keys and values to the result, the others to scratch space.
    ///
    /// # Safety
    /// As [`Self::gradients`]; nobody else writes there.
    unsafe fn part(
        &self,
        thread: &mut Thread<'_>,
        inputs: &[Region],
        results: &[Region],
        (head, part): (usize, usize),
        partial: *mut f32,
    ) {
        let (from, to) = (self.head(inputs, head), self.written(results, head));
        let to = if part == 0 { to } else { self.sizes.partial(to.query, partial) };
        let n_blocks = self.sizes.group * self.sizes.n_blocks();
        let blocks = (part..n_blocks).step_by(self.n_parts);
        // SAFETY: required of the caller.
        unsafe { self.sizes.gradients(thread, from, to, blocks) };
    }

    /// Returns the operands of a head of queries.
    fn query_head(&self, inputs: &[Region], head: usize) -> Head {
        let group = self.sizes.group;
        self.sizes.member(self.head(inputs, head / group), head % group)
    }

    /// Returns the operands of a head of keys, with the first of its heads of queries.
    fn head(&self, inputs: &[Region], head: usize) -> Head {
        let Sizes { group, queries, keys, features, width, .. } = self.sizes;
        let at = |input: usize, head: usize, n_rows: usize, width: usize| {
            let alternating = self.attention.layout.operands[input];
            matrix(inputs[input], alternating, (head, n_rows), width)
        };
        let integers = |at: usize, from: usize| inputs[at].at(from).cast_const().cast::<i32>();
        let segments = self.attention.segment_inputs().zip(self.attention.segments);
        let segments = segments.map(|([of_queries, of_keys], n_rows)| {
            let row = head * n_rows / self.heads;
            let queries = integers(of_queries, row * queries);
            Segments { queries, keys: integers(of_keys, row * keys) }
        });
        let bias = self.attention.bias_input().map(|it| inputs[it].at(0).cast_const());
        let heads = self.attention.heads_input().map(|it| integers(it, 0));
        Head {
            query: at(0, head * group, queries, features),
            key: at(1, head, keys, features),
            value: at(2, head, keys, width),
            gradient: match self.form {
                AttentionForm::Forward => at(0, head * group, queries, features),
                AttentionForm::Gradient
                | AttentionForm::QueryGradient
                | AttentionForm::KeyGradient
                | AttentionForm::ValueGradient => at(3, head * group, queries, width),
            },
            positions: self.attention.positions_input().map(|it| integers(it, 0)),
            mask: Mask { head: head * group, heads, segments, bias },
        }
    }

    /// Returns the destination of the result of a head of queries.
    const fn result(&self, results: &[Region], head: usize) -> Matrix {
        let Sizes { queries, width, .. } = self.sizes;
        matrix(results[0], self.attention.layout.results[0], (head, queries), width)
    }

    /// Returns the destinations of the gradients of a head of keys, with the first of its heads of
    /// queries.
    fn written(&self, results: &[Region], head: usize) -> Written {
        let Sizes { group, queries, keys, features, width, .. } = self.sizes;
        let mut results = results.iter().zip(self.attention.layout.results);
        let mut next = |is_wanted: bool, head: usize, n_rows: usize, width: usize| {
            let result = if is_wanted { results.next() } else { None };
            result.map(|(it, alternating)| matrix(*it, alternating, (head, n_rows), width))
        };
        Written {
            query: next(self.form.has_query_gradient(), head * group, queries, features),
            key: next(self.form.has_key_gradient(), head, keys, features),
            value: next(self.form.has_value_gradient(), head, keys, width),
        }
    }
}

/// Takes blocks alternately from both ends, because in causal attention the last ones have the most
/// work.
const fn in_turn(number: usize, n_blocks: usize) -> usize {
    if number.is_multiple_of(2) { number / 2 } else { n_blocks - 1 - number / 2 }
}

#[cfg(test)]
mod tests;
