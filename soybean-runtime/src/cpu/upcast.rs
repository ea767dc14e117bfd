//! `bf16` for kernels without support for it: their inputs are converted to `f32` in separate
//! memory, and their results are rounded from there.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::{DType, bf16};

use super::region::Region;
use crate::Error;

/// Converted regions begin at multiples of a cache line, counted from the first.
const LINE: usize = 16;

/// Memory for the converted operands of one kernel. It grows to the largest size while each kernel
/// runs for the first time.
pub(crate) struct Upcast {
    scratch: Vec<f32>,
    inputs: Vec<Region>,
    results: Vec<Region>,
}

impl Upcast {
    /// Returns an empty buffer with capacity for this many operands.
    pub(crate) fn new(n_operands: usize) -> Self {
        Self {
            scratch: Vec::new(),
            inputs: Vec::with_capacity(n_operands),
            results: Vec::with_capacity(n_operands),
        }
    }

    /// Runs a kernel over the same operands, none of which is `bf16`.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call, and results of `bf16` are not inputs.
    pub(crate) unsafe fn run<T>(
        &mut self,
        inputs: &[Region],
        results: &[Region],
        kernel: impl FnOnce(&[Region], &[Region]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let length = |it: &Region| if it.dtype == DType::Bf16 { padded(it) } else { 0 };
        let n_wide = inputs.iter().chain(results).map(length).sum();
        if n_wide == 0 {
            return kernel(inputs, results);
        }
        if self.scratch.len() < n_wide {
            self.scratch.resize(n_wide, 0.0);
        }
        let mut next = self.scratch.as_mut_ptr();
        let mut widened = |region: &Region| {
            if region.dtype != DType::Bf16 {
                return *region;
            }
            let wide = Region { pointer: next, n_elements: region.n_elements, dtype: DType::F32 };
            next = next.wrapping_add(padded(region));
            wide
        };
        self.inputs.clear();
        self.inputs.extend(inputs.iter().map(&mut widened));
        self.results.clear();
        self.results.extend(results.iter().map(&mut widened));
        let is_rounded = |it: &(&Region, &Region)| it.0.dtype == DType::Bf16;
        for (input, wide) in inputs.iter().zip(&self.inputs).filter(is_rounded) {
            // SAFETY: the region is `bf16`, and the other is its own part of the scratch space with
            // as many elements.
            unsafe { upcast(input.pointer.cast(), wide.pointer, input.n_elements) };
        }
        let outcome = kernel(&self.inputs, &self.results)?;
        for (result, wide) in results.iter().zip(&self.results).filter(is_rounded) {
            // SAFETY: as above.
            unsafe { round(wide.pointer, result.pointer.cast(), result.n_elements) };
        }
        Ok(outcome)
    }
}

const fn padded(region: &Region) -> usize {
    region.n_elements.next_multiple_of(LINE)
}

/// Converts `n` numbers to `f32`.
///
/// # Safety
/// Both have `n` elements and do not overlap; nobody else uses them.
pub(crate) unsafe fn upcast(from: *const u16, to: *mut f32, n: usize) {
    // SAFETY: required of the caller.
    let from = unsafe { std::slice::from_raw_parts(from, n) };
    // SAFETY: as above.
    let to = unsafe { std::slice::from_raw_parts_mut(to, n) };
    for (to, from) in to.iter_mut().zip(from) {
        *to = bf16::to_f32(*from);
    }
}

/// Rounds `n` numbers to the nearest `bf16`.
///
/// # Safety
/// As [`upcast`].
pub(crate) unsafe fn round(from: *const f32, to: *mut u16, n: usize) {
    // SAFETY: required of the caller.
    let from = unsafe { std::slice::from_raw_parts(from, n) };
    // SAFETY: as above.
    let to = unsafe { std::slice::from_raw_parts_mut(to, n) };
    for (to, from) in to.iter_mut().zip(from) {
        *to = bf16::from_f32(*from);
    }
}
