//! Work shared out among the threads of a rank.

use std::ops::Range;

use rayon::prelude::*;

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
        run(part, number * n_units / n_parts..(number + 1) * n_units / n_parts);
    });
}
