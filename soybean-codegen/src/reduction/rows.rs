//! Reductions in which neighboring reduced points are next to each other: some lanes of a warp, or
//! a whole block, compute each result.

use super::{FEWEST_POINTS, Loop, Pass};
use crate::{
    Operation,
    space::n_points,
    text::{Function, Text, Threads},
};

/// The threads of a block.
const BLOCK: usize = 256;
/// Longer rows, in loads of a thread, get a block each.
const LONGEST_OF_WARP: usize = 32 * 16;

impl Pass<'_> {
    /// Returns the number of loads that a row consists of.
    fn row_numbers(&self) -> usize {
        n_points(&self.reduced) / self.width()
    }

    /// Returns the number of threads that combine a row.
    fn row_threads(&self) -> usize {
        let numbers = self.row_numbers();
        if numbers > LONGEST_OF_WARP { BLOCK } else { numbers.next_power_of_two().min(32) }
    }

    /// Returns the threads of all rows, and the maximum number of parts of a row.
    pub(super) fn rows_threads(&self) -> (usize, usize) {
        let n_threads = n_points(&self.kept) * self.row_threads();
        (n_threads, self.row_numbers() / (BLOCK * FEWEST_POINTS))
    }

    pub(super) fn write_rows(&self, text: &mut Text) -> Option<Operation> {
        let (n_kept, n_threads) = (n_points(&self.kept), self.row_threads());
        let threads = if n_threads == 1 { Threads::Independent } else { Threads::Cooperating };
        let function = Function {
            name: self.name.clone(),
            parameters: self.parameters(),
            threads,
            block: 256,
        };
        let (width, index_type) = (self.width(), self.index_type());
        text.function(&function, |text| {
            crate::formula::write_scalars(text, self.program);
            text.line(format!("const unsigned lane = threadIdx.x % {n_threads}u;"));
            let row = format!(
                "({index_type})blockIdx.x * {}u + threadIdx.x / {n_threads}u",
                BLOCK / n_threads
            );
            text.line(format!("const {index_type} row = {row};"));
            // Threads without a row compute too, because all must take part in exchanges.
            text.line(format!(
                "const {index_type} kept = row < {n_kept}u ? row : {}u;",
                n_kept - 1
            ));
            let kept_places = self.kept_places(text);
            self.write_share(text, self.row_numbers(), "lane");
            let kept_places = kept_places.as_slice();
            self.write_loop(
                text,
                &Loop { step: n_threads, points_of_number: width, width, kept_places },
            );
            self.write_exchange(text, width, n_threads);
            let place = self.result_place("kept", kept_places);
            text.line(format!(
                "if (lane == 0 && row < {n_kept}u) soybean_store(out0 + {place}, all);"
            ));
        });
        let n_blocks = u32::try_from(n_kept.div_ceil(BLOCK / n_threads)).ok()?;
        Some(function.launch([n_blocks, u32::try_from(self.n_splits).ok()?, 1]))
    }

    fn write_exchange(&self, text: &mut Text, width: usize, n_threads: usize) {
        let (combine, c_type) = (self.combine_type(), self.c_type());
        text.line(format!("{c_type} all = sums[0];"));
        if width > 1 {
            let each = format!("for (int e = 1; e < {width}; ++e)");
            text.line(format!("{each} all = {combine}::combine(all, sums[e]);"));
        }
        if n_threads > 32 {
            text.line(format!("__shared__ {c_type} scratch[32];"));
            let n_warps = n_threads / 32;
            text.line(format!("all = soybean_combine_block<{combine}, {n_warps}>(all, scratch);"));
        } else if n_threads > 1 {
            text.line(format!("all = soybean_combine_lanes<{combine}>(all, {n_threads});"));
        }
    }
}
