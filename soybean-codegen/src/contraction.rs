//! CUDA C for [`Contraction`].

use soybean_plan::{Contraction, Shape, Strides};

use crate::{
    Call, Generated,
    generate::CudaKernel,
    product::{Operand, Product, Units},
};

/// The general implementation for any strides.
impl CudaKernel for Contraction {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        let Contraction { batch, rows, columns, depth, left, right, result } = *self;
        if batch.n_elements() * rows * columns == 0 {
            return Some(Generated::default());
        }
        let operand = |input: usize, strides: Strides, line: usize, depth: usize| Operand {
            input,
            dtype: call.inputs[input],
            is_along_depth: depth < line,
            members: members(&offset(&batch, strides), line, depth),
        };
        let last =
            |strides: Strides, row: usize, column: usize, n_rows: usize, n_columns: usize| {
                let batch: usize =
                    batch.iter().zip(strides.0).map(|(extent, step)| extent * step).sum();
                batch + n_rows * row + n_columns * column
            };
        let extents = [
            last(left.batch, left.row, left.column, rows, depth),
            last(right.batch, right.row, right.column, depth, columns),
            last(result.batch, result.row, result.column, rows, columns),
        ];
        let product = Product {
            prefix,
            units: Units::new(call),
            batch: batch.n_elements(),
            rows,
            columns,
            depth,
            left: operand(0, left.batch, left.row, left.column),
            right: operand(1, right.batch, right.column, right.row),
            bias: None,
            result: call.results[0],
            has_eight_neighbors: result.column == 1
                && result.batch.0.iter().chain([&result.row]).all(|it| it.is_multiple_of(8))
                && columns.is_multiple_of(8),
            axes: ["row", "column"],
            offset: format!(
                "{} + row * {} + column * {}",
                offset(&batch, result.batch),
                result.row,
                result.column
            ),
            most_elements: extents.into_iter().max().unwrap_or_default(),
        };
        product.with_few_columns().generated()
    }
}

fn members(start: &str, line: usize, depth: usize) -> String {
    format!(
        "typedef Index Line;
static __device__ __forceinline__ Index start(Index batch) {{ return {start}; }}
__device__ __forceinline__ Line line(Index line) const {{ return line * {line}; }}
__device__ __forceinline__ float at(Line line, Index depth) const {{ return soybean_value(from[line + depth * {depth}]); }}"
    )
}

/// Returns the offset of the matrix with the number `batch`.
fn offset(extents: &Shape, strides: Strides) -> String {
    let mut within = 1;
    let mut terms = Vec::new();
    for (extent, stride) in extents.iter().zip(strides.0).rev() {
        if *extent > 1 && stride > 0 {
            terms.push(format!("batch / {within} % {extent} * {stride}"));
        }
        within *= extent;
    }
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}
