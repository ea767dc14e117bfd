//! The threads of a rank, each with its memory.

use std::ops::Range;

use super::head::{Thread, score::ScoreScratch};
use crate::cpu::{parallel::parallel_for_both, product::Workspace};

/// The memory of all threads; both have one member for each.
pub(super) struct Team<'a> {
    pub(super) workspaces: &'a mut [Workspace],
    pub(super) scores: &'a mut [Option<ScoreScratch>],
}

impl Team<'_> {
    /// Runs units `0..n_units`, in total `work` element operations, in parallel.
    pub(super) fn run(
        &mut self,
        n_units: usize,
        work: usize,
        run: impl Fn(&mut Thread<'_>, Range<usize>) + Sync,
    ) {
        parallel_for_both(
            self.workspaces,
            self.scores,
            (n_units, work),
            |workspace, score, units| {
                run(&mut Thread { workspace, score: score.as_mut() }, units);
            },
        );
    }
}
