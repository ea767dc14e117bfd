//! Combines partial results of several ranks.
#![expect(unsafe_code, reason = "ranks read each other's arenas")]

use soybean_plan::Combine;

use super::{
    isa::Isa,
    vector::{Accumulate, accumulate_each},
};

/// Elements that are combined at once, so that the sum stays in the first-level cache.
const BLOCK: usize = 2048;

/// How partial results are combined, always in the order of the ranks so that every run gives the same bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Combiner {
    each: Accumulate,
}

impl Combiner {
    pub(crate) fn new(combine: Combine) -> Self {
        Self { each: accumulate_each(combine, Isa::detect()) }
    }

    /// Combines `n` elements of each of the sources.
    ///
    /// # Safety
    /// All have `n` elements; nobody writes to the sources, and nobody else uses the result.
    pub(crate) unsafe fn combine(
        &self,
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
                    unsafe { (self.each)(to, from, length) };
                }
            }
        }
    }
}
