//! Combination of partial results of several ranks.
#![expect(unsafe_code, reason = "ranks read each other's arenas")]

use soybean_plan::{Combine, DType};

use super::{
    isa::Isa,
    upcast::{round, upcast},
    vector::{Accumulate, accumulate_each, accumulate_each_integer},
};

/// The elements that are combined at once, so that the sum stays in the first-level cache.
const BLOCK: usize = 2048;

/// The combination of partial results, always in the order of the ranks, so that every run gives
/// the same bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Combiner {
    each: Accumulate,
    each_integer: Accumulate,
}

impl Combiner {
    pub(crate) fn new(combine: Combine) -> Self {
        let isa = Isa::detect();
        Self {
            each: accumulate_each(combine, isa),
            each_integer: accumulate_each_integer(combine, isa),
        }
    }

    /// Combines `n` elements of each of the sources.
    ///
    /// # Safety
    /// All have `n` elements of this type; nobody writes to the sources, and nobody else uses the
    /// result.
    pub(crate) unsafe fn combine(
        &self,
        dtype: DType,
        sources: impl Iterator<Item = *const u8> + Clone,
        result: *mut u8,
        n: usize,
    ) {
        match dtype {
            DType::F32 => {
                let sources = sources.map(<*const u8>::cast);
                // SAFETY: required of the caller.
                unsafe { combine_words(self.each, sources, result.cast(), n) }
            }
            DType::I32 => {
                let sources = sources.map(<*const u8>::cast);
                // SAFETY: required of the caller.
                unsafe { combine_words(self.each_integer, sources, result.cast(), n) }
            }
            DType::Bf16 => {
                // SAFETY: required of the caller.
                unsafe { self.combine_bf16(sources.map(<*const u8>::cast), result.cast(), n) }
            }
        }
    }

    /// Combines in `f32`, and rounds once.
    ///
    /// # Safety
    /// As [`Self::combine`].
    unsafe fn combine_bf16(
        &self,
        sources: impl Iterator<Item = *const u16> + Clone,
        result: *mut u16,
        n: usize,
    ) {
        let (mut sum, mut term) = ([0.0; BLOCK], [0.0; BLOCK]);
        for start in (0..n).step_by(BLOCK) {
            let length = BLOCK.min(n - start);
            for (number, source) in sources.clone().enumerate() {
                let wide = if number == 0 { &mut sum } else { &mut term };
                // SAFETY: required of the caller; the block is long enough.
                unsafe { upcast(source.wrapping_add(start), wide.as_mut_ptr(), length) };
                if number > 0 {
                    // SAFETY: both blocks have this length.
                    unsafe { (self.each)(sum.as_mut_ptr(), term.as_ptr(), length) };
                }
            }
            // SAFETY: required of the caller.
            unsafe { round(sum.as_ptr(), result.wrapping_add(start), length) };
        }
    }
}

/// Combines numbers of single precision or the bits of integers.
///
/// # Safety
/// As [`Combiner::combine`].
unsafe fn combine_words(
    each: Accumulate,
    sources: impl Iterator<Item = *const f32> + Clone,
    result: *mut f32,
    n: usize,
) {
    for start in (0..n).step_by(BLOCK) {
        let length = BLOCK.min(n - start);
        let to = result.wrapping_add(start);
        for (number, source) in sources.clone().enumerate() {
            let from = source.wrapping_add(start);
            if number == 0 {
                // SAFETY: required of the caller.
                unsafe { to.copy_from_nonoverlapping(from, length) };
            } else {
                // SAFETY: required of the caller.
                unsafe { each(to, from, length) };
            }
        }
    }
}
