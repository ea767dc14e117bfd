//! Planes in phases: the pixels whose rows and columns are a stride apart. Within a phase, the
//! pixels that neighboring windows see are neighbors.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use crate::cpu::pack::copy_short;

/// A dense plane as phases. Index `i` of phase `p` along a dim is pixel `step * i + p - before`.
pub(super) struct Phases {
    pub(super) extents: [usize; 2],
    pub(super) step: [usize; 2],
    before: [usize; 2],
    /// For each phase of the columns, the indices whose pixels are in the plane.
    seen: Vec<Range<usize>>,
}

impl Phases {
    /// Prepares a plane; `n_columns` bounds the indices of columns.
    pub(super) fn new(
        extents: [usize; 2],
        step: [usize; 2],
        before: [usize; 2],
        n_columns: usize,
    ) -> Self {
        let seen = |phase: usize| {
            let n_before = |bound: usize| bound.saturating_sub(phase).div_ceil(step[1]);
            let low = n_before(before[1]).min(n_columns);
            low..n_before(before[1] + extents[1]).clamp(low, n_columns)
        };
        Self { extents, step, before, seen: (0..step[1]).map(seen).collect() }
    }

    /// Returns the range of a row of the plane, if it is in the plane.
    #[inline(always)]
    fn row(&self, phase: usize, index: usize) -> Option<Range<usize>> {
        let [height, width] = self.extents;
        let padded = self.step[0] * index + phase;
        let row = padded.checked_sub(self.before[0]).filter(|it| *it < height)?;
        Some(row * width..(row + 1) * width)
    }

    /// Copies some rows of one phase to rows of `pitch` elements, with zeros outside of the plane
    /// and after the last row.
    #[inline(always)]
    pub(super) fn spread(
        &self,
        plane: &[f32],
        phase: [usize; 2],
        rows: Range<usize>,
        (to, pitch): (&mut [f32], usize),
    ) {
        let seen = self.seen[phase[1]].clone();
        let step = self.step[1];
        // An empty range may start left of the plane; nothing is read there.
        let first = (step * seen.start + phase[1]).saturating_sub(self.before[1]);
        let (to, rest) = to.split_at_mut(rows.len() * pitch);
        rest.fill(0.0);
        for (index, to) in rows.zip(to.chunks_exact_mut(pitch)) {
            let Some(row) = self.row(phase[0], index).filter(|_| !seen.is_empty()) else {
                to.fill(0.0);
                continue;
            };
            to[..seen.start].iter_mut().for_each(|it| *it = 0.0);
            to[seen.end..].iter_mut().for_each(|it| *it = 0.0);
            strided(&plane[row][first..], step, &mut to[seen.clone()]);
        }
    }

    /// Writes some rows of one phase of the rows, from all phases of the columns, which are `size`
    /// elements apart and have rows of `pitch` elements.
    ///
    /// # Safety
    /// The plane has all pixels, and nothing else writes to these.
    #[inline(always)]
    pub(super) unsafe fn join(
        &self,
        (from, size, pitch): (&[f32], usize, usize),
        phase: usize,
        rows: Range<usize>,
        plane: *mut f32,
    ) {
        let step = self.step[1];
        // The column of the plane, as a place in the phases.
        let place = |column: usize| {
            let padded = column + self.before[1];
            padded % step * size + padded / step
        };
        for (at, index) in rows.enumerate() {
            let Some(row) = self.row(phase, index) else { continue };
            let (from, to) = (&from[at * pitch..], plane.wrapping_add(row.start));
            // SAFETY: required of the caller.
            let to = unsafe { std::slice::from_raw_parts_mut(to, row.len()) };
            match step {
                1 => copy(&from[place(0)..][..to.len()], to),
                2 if to.len() > 1 => interleave(&from[place(0)..], &from[place(1)..], to),
                _ => to.iter_mut().enumerate().for_each(|(at, it)| *it = from[place(at)]),
            }
        }
    }
}

/// Copies elements to as many others, faster than the general function if they are few.
#[inline(always)]
fn copy(from: &[f32], to: &mut [f32]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: both have this length, and one is borrowed mutably.
    unsafe { copy_short(from.as_ptr(), to.as_mut_ptr(), to.len()) };
}

/// Copies elements that are a step apart.
#[inline(always)]
fn strided(from: &[f32], step: usize, to: &mut [f32]) {
    match step {
        1 => copy(&from[..to.len()], to),
        2 => {
            // With a known step the loop vectorizes; the last element may have no neighbor.
            let Some((last, to)) = to.split_last_mut() else { return };
            *last = from[2 * to.len()];
            for (to, [from, _]) in to.iter_mut().zip(from.as_chunks().0) {
                *to = *from;
            }
        }
        _ => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, from)| *to = *from),
    }
}

/// Writes the elements of two sources in turns.
#[inline(always)]
fn interleave(even: &[f32], odd: &[f32], to: &mut [f32]) {
    let n = to.len();
    let (pairs, rest) = to.as_chunks_mut::<2>();
    for ((to, even), odd) in pairs.iter_mut().zip(even).zip(odd) {
        *to = [*even, *odd];
    }
    if let [last] = rest {
        *last = even[n / 2];
    }
}
