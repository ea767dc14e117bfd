//! Reductions in which neighboring kept points are next to each other. Each thread combines some
//! columns over some of the reduced points. Threads that share columns exchange their results
//! through shared memory.

use super::{FEWEST_POINTS, Loop, Pass};
use crate::{
    Operation,
    map::Access,
    space::n_points,
    text::{Function, Text, Threads},
};

/// The threads of a block.
const BLOCK: usize = 256;

impl Pass<'_> {
    /// Returns the number of loads that the columns consist of.
    fn column_numbers(&self) -> usize {
        n_points(&self.kept) / self.width()
    }

    /// Returns the threads of a block that have different columns, and those that share columns.
    fn column_threads(&self) -> (usize, usize) {
        let lanes = self.column_numbers().next_power_of_two().min(32);
        let rows = (BLOCK / lanes).min(n_points(&self.reduced).next_power_of_two());
        (BLOCK / rows, rows)
    }

    /// Returns the threads of all columns, and the maximum number of parts of a column.
    pub(super) fn columns_threads(&self) -> (usize, usize) {
        let (lanes, rows) = self.column_threads();
        let n_threads = self.column_numbers().div_ceil(lanes) * BLOCK;
        (n_threads, n_points(&self.reduced) / (rows * FEWEST_POINTS))
    }

    pub(super) fn write_columns(&self, text: &mut Text) -> Option<Operation> {
        let (width, numbers) = (self.width(), self.column_numbers());
        let (lanes, rows) = self.column_threads();
        let threads = if rows == 1 { Threads::Independent } else { Threads::Cooperating };
        let function = Function {
            name: self.name.clone(),
            parameters: self.parameters(),
            threads,
            block: 256,
        };
        let index_type = self.index_type();
        text.function(&function, |text| {
            crate::formula::write_scalars(text, self.program);
            text.line(format!(
                "const unsigned lane = threadIdx.x % {lanes}u, row = threadIdx.x / {lanes}u;"
            ));
            text.line(format!(
                "const {index_type} column = ({index_type})blockIdx.x * {lanes}u + lane;"
            ));
            // Threads without columns compute too, because all must take part in exchanges.
            let last = numbers - 1;
            text.line(format!(
                "const {index_type} kept = (column < {numbers}u ? column : {last}u) * {width}u;"
            ));
            let kept_places = self.kept_places(text);
            self.write_share(text, n_points(&self.reduced), "row");
            let kept_places = kept_places.as_slice();
            self.write_loop(text, &Loop { step: rows, points_of_number: 1, width, kept_places });
            if rows > 1 {
                self.write_shared_sums(text, width, lanes, rows);
            }
            text.line(format!("if (row != 0 || column >= {numbers}u) return;"));
            self.write_store(text, width, kept_places);
        });
        let n_blocks = u32::try_from(numbers.div_ceil(lanes)).ok()?;
        Some(function.launch([n_blocks, u32::try_from(self.n_splits).ok()?, 1]))
    }

    /// Writes the exchange in which the first of the threads that share columns combines all of
    /// their results, in their order.
    fn write_shared_sums(&self, text: &mut Text, width: usize, lanes: usize, rows: usize) {
        let (each, combine) = (format!("for (int e = 0; e < {width}; ++e)"), self.combine_type());
        text.line(format!("__shared__ {} scratch[{rows}][{width}][{lanes}];", self.c_type()));
        text.line(format!("{each} scratch[row][e][lane] = sums[e];"));
        text.line("__syncthreads();");
        text.block("if (row == 0)", |text| {
            let all = format!("for (int other = 1; other < {rows}; ++other)");
            text.line(format!(
                "{all} {each} sums[e] = {combine}::combine(sums[e], scratch[other][e][lane]);"
            ));
        });
    }

    fn write_store(&self, text: &mut Text, width: usize, kept_places: &[String]) {
        let place = self.result_place("kept", kept_places);
        if width == 1 {
            return text.line(format!("soybean_store(out0 + {place}, sums[0]);"));
        }
        let axes = &self.kept;
        let stride = match Access::of(axes, self.types.len(), width) {
            _ if self.n_splits > 1 => 1,
            Access::Dense | Access::Stretch => 1,
            Access::Even(stride) => stride,
            Access::Same | Access::Each => 0,
        };
        if stride == 1 {
            return text.line(format!("soybean_store(out0 + {place}, sums);"));
        }
        let each = format!("for (unsigned e = 0; e < {width}u; ++e)");
        text.line(format!("{each} soybean_store(out0 + ({place} + e * {stride}u), sums[e]);"));
    }
}
