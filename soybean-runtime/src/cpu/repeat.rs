//! Loops that fill short rows with one number each.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

#[cfg(target_arch = "x86_64")]
use super::math::Fused;
use super::{
    interpreter::LINE,
    isa::{Isa, for_each_isa},
    math::{MultiplyAdd, Separate},
};

/// A loop that fills rows with one number each. The numbers are at equal distances.
pub(crate) type Repeat = unsafe fn(*const f32, usize, *mut f32, (usize, usize));

for_each_isa! {
    /// Returns the loop that fills rows. The last one is filled up to a whole line.
    pub(crate) repeat [] []
    Repeat, repeat_body (first: *const f32, distance: usize, to: *mut f32, sizes: (usize, usize))
}

/// # Safety
/// There are as many numbers as rows, and place for the rows, of which the last ends with a line.
#[inline(always)]
unsafe fn repeat_body<M: MultiplyAdd>(
    first: *const f32,
    distance: usize,
    to: *mut f32,
    (n_rows, row): (usize, usize),
) {
    for number in 0..n_rows {
        // SAFETY: required of the caller.
        let line = [unsafe { first.wrapping_add(number * distance).read() }; LINE];
        let to = to.wrapping_add(number * row);
        for at in (0..row).step_by(LINE) {
            // SAFETY: as above.
            unsafe { to.wrapping_add(at).cast::<[f32; LINE]>().write_unaligned(line) };
        }
    }
}
