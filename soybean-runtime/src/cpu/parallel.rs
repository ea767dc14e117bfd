//! Parallel loops over the threads of a rank.

use std::ops::Range;

use rayon::prelude::*;

/// The approximate number of pieces into which long sums are split if there are few results.
/// Threads share the pieces, which are then added up in their order. It does not depend on the
/// number of threads, so results do not either, and it has many divisors.
pub(crate) const N_PIECES: usize = 48;

/// Below this many element operations, waking other threads costs more than they save.
const WORTH_SHARING: usize = 64 * 1024;

/// Runs units `0..n_units`, in total `work` element operations, in parallel: one consecutive range
/// for each part.
pub(crate) fn parallel_for<P: Send>(
    parts: &mut [P],
    n_units: usize,
    work: usize,
    run: impl Fn(&mut P, Range<usize>) + Sync,
) {
    // Units take no memory.
    let mut nothing = vec![(); parts.len()];
    parallel_for_both(parts, &mut nothing, (n_units, work), |part, (), units| run(part, units));
}

/// Runs units as [`parallel_for`] does, where each part has two members.
pub(crate) fn parallel_for_both<P: Send, Q: Send>(
    parts: &mut [P],
    others: &mut [Q],
    (n_units, work): (usize, usize),
    run: impl Fn(&mut P, &mut Q, Range<usize>) + Sync,
) {
    let n_parts = parts.len();
    debug_assert_eq!(n_parts, others.len(), "each part has two members");
    if n_parts == 1 || n_units < 2 || work < WORTH_SHARING {
        return run(&mut parts[0], &mut others[0], 0..n_units);
    }
    let both = parts.par_iter_mut().zip(others.par_iter_mut());
    both.enumerate().for_each(|(number, (part, other))| {
        run(part, other, part_range(n_units, number, n_parts));
    });
}

/// Returns the `number`-th of `n_parts` parts of `0..n`.
pub(crate) const fn part_range(n: usize, number: usize, n_parts: usize) -> Range<usize> {
    number * n / n_parts..(number + 1) * n / n_parts
}

/// Returns the largest divisor of [`N_PIECES`] that is at most `most`: a number of pieces that many
/// numbers of threads can share evenly.
pub(crate) fn even_pieces(most: usize) -> usize {
    (1..=most.min(N_PIECES)).rev().find(|it| N_PIECES.is_multiple_of(*it)).unwrap_or(1)
}
