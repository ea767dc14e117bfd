//! Work shared out among the threads of a rank.

use std::ops::Range;

use rayon::prelude::*;

/// Where there are few results, their sums are cut into about so many pieces, which threads share and which are then added up in their order. The number of threads
/// does not decide, so that results do not depend on it; this one has many divisors.
pub(crate) const N_PIECES: usize = 48;

/// Below this many element operations, waking other threads costs more than they save.
const WORTH_SHARING: usize = 64 * 1024;

/// Runs units `0..n_units` of altogether `work` element operations, in as many consecutive ranges as there are parts, side by side.
pub(crate) fn share<P: Send>(
    parts: &mut [P],
    n_units: usize,
    work: usize,
    run: impl Fn(&mut P, Range<usize>) + Sync,
) {
    let n_parts = parts.len();
    if n_parts == 1 || n_units < 2 || work < WORTH_SHARING {
        return run(&mut parts[0], 0..n_units);
    }
    parts.par_iter_mut().enumerate().for_each(|(number, part)| {
        run(part, part_of(n_units, number, n_parts));
    });
}

/// The `number`-th of `n_parts` parts of `0..n`.
pub(crate) const fn part_of(n: usize, number: usize, n_parts: usize) -> Range<usize> {
    number * n / n_parts..(number + 1) * n / n_parts
}

/// The largest divisor of [`N_PIECES`] that is not above this: as many pieces as several numbers of threads can share evenly.
pub(crate) fn even_pieces(most: usize) -> usize {
    (1..=most.min(N_PIECES)).rev().find(|it| N_PIECES.is_multiple_of(*it)).unwrap_or(1)
}
