//! The function of scores: a scalar program over each row of products.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use soybean_plan::{Attention, DType, ScalarProgram, ScoreFunction};

use super::{Block, Sizes, Thread};
use crate::cpu::{
    interpreter::{Interpreter, Scratch},
    isa::Isa,
    region::Region,
    space::Space,
};

/// A [`ScoreFunction`] over rows of keys.
pub(in crate::cpu::attention) struct ScoreLoops {
    score: Interpreter,
    slope: Option<Interpreter>,
    /// The positions of all keys.
    keys: Vec<i32>,
    n_heads: usize,
}

/// The memory of one thread for [`ScoreLoops`].
pub(in crate::cpu::attention) struct ScoreScratch {
    score: Scratch,
    slope: Option<Scratch>,
}

impl ScoreLoops {
    pub(super) fn new(attention: &Attention, isa: Isa) -> Option<Self> {
        let ScoreFunction { score, slope, heads } = attention.score.as_ref()?;
        let interpreter = |program: &ScalarProgram| {
            // Products and keys differ along a row; its query and head are the same.
            let strides = [1, 0, 1, 0].map(|it| vec![it]).to_vec();
            let row = Space { extents: vec![attention.keys], strides };
            Interpreter::new(program, row.clone(), row, isa)
        };
        let n_keys = i32::try_from(attention.keys).expect("positions are integers of 32 bits");
        Some(Self {
            score: interpreter(score),
            slope: slope.as_ref().map(interpreter),
            keys: (0..n_keys).collect(),
            n_heads: heads.unwrap_or(1),
        })
    }

    fn scratch(&self) -> ScoreScratch {
        let slope = self.slope.as_ref().map(Interpreter::scratch);
        ScoreScratch { score: self.score.scratch(), slope }
    }

    /// Replaces `n` scaled products by scores, and writes the slopes at the products.
    ///
    /// # Safety
    /// The products and the slopes have `n` elements that nothing else refers to. The keys from
    /// `first` on exist.
    unsafe fn run(
        &self,
        scratch: &mut ScoreScratch,
        [products, slopes]: [*mut f32; 2],
        (first, n): (usize, usize),
        [mut query, mut head]: [i32; 2],
    ) {
        // Integers are read as they are.
        let region = |pointer: *mut f32, n_elements: usize| Region {
            pointer,
            n_elements,
            dtype: DType::F32,
        };
        let keys = self.keys.as_ptr().wrapping_add(first).cast_mut();
        let inputs = [
            region(products, n),
            region((&raw mut query).cast(), 1),
            region(keys.cast(), n),
            region((&raw mut head).cast(), 1),
        ];
        if let (Some(slope), Some(scratch)) = (&self.slope, &mut scratch.slope) {
            // SAFETY: required of the caller; the inputs have these elements.
            unsafe { slope.begin(scratch, &inputs, &[]) };
            for at in (0..n).step_by(slope.block) {
                scratch.targets[0] = Some(slopes.wrapping_add(at));
                // SAFETY: as above; slopes are apart from the inputs.
                unsafe { slope.run_block(scratch, &inputs, (0, at, slope.block.min(n - at))) };
            }
        }
        let (score, scratch) = (&self.score, &mut scratch.score);
        // SAFETY: as above.
        unsafe { score.begin(scratch, &inputs, &[]) };
        for at in (0..n).step_by(score.block) {
            let length = score.block.min(n - at);
            // SAFETY: as above; the results are in scratch memory.
            unsafe { score.run_block(scratch, &inputs, (0, at, length)) };
            let (from, to) = (score.result(scratch, 0), products.wrapping_add(at));
            // SAFETY: both have these elements.
            unsafe { to.copy_from_nonoverlapping(from, length) };
        }
    }
}

impl Sizes {
    /// Allocates the memory of one thread for the function of scores, if there is one.
    pub(in crate::cpu::attention) fn score_scratch(&self) -> Option<ScoreScratch> {
        self.score.as_ref().map(ScoreLoops::scratch)
    }

    /// Replaces the products of a block with some keys by scores, where there is a function.
    ///
    /// # Safety
    /// The block has products for these keys, and positions for all of its rows if it has any.
    pub(super) unsafe fn apply_function(
        &self,
        thread: &mut Thread<'_>,
        block: &Block,
        keys: &Range<usize>,
    ) {
        let (Some(score), Some(scratch)) = (&self.score, &mut thread.score) else { return };
        let head = block.mask.heads.map_or(0, |heads| {
            // SAFETY: there is a number for each of the different heads.
            unsafe { heads.wrapping_add(block.mask.head % score.n_heads).read() }
        });
        for row in 0..block.queries.len() {
            // SAFETY: required of the caller.
            let visible = unsafe { self.visible(block, row, keys) };
            // SAFETY: as above.
            let position = unsafe { block.position(row) }.and_then(|it| i32::try_from(it).ok());
            let (at, n) = (row * keys.len() + visible.start, visible.len());
            let [products, slopes] = [block.weights, block.slopes].map(|it| it.wrapping_add(at));
            // SAFETY: as above.
            unsafe { (self.rows.scale)(products, n, self.scale) };
            let integers = [position.unwrap_or(0), head];
            let of_keys = (keys.start + visible.start, n);
            // SAFETY: as above; slopes have as much memory as products.
            unsafe { score.run(scratch, [products, slopes], of_keys, integers) };
        }
    }

    /// Multiplies the gradients of visible scores of a row by the slopes of the function, where
    /// there is one.
    ///
    /// # Safety
    /// The block has gradients for these keys, and slopes that [`Self::apply_function`] wrote.
    pub(super) unsafe fn apply_slopes(&self, block: &Block, at: usize, n: usize) {
        if self.score.as_ref().is_some_and(|it| it.slope.is_some()) {
            let (gradients, slopes) =
                (block.gradients.wrapping_add(at), block.slopes.wrapping_add(at));
            // SAFETY: required of the caller.
            unsafe { (self.rows.multiply_slopes)(gradients, slopes, n) };
        }
    }
}
