//! CUDA C for [`Concatenation`]: a row of blocks for each part.

use soybean_plan::{Concatenation, DType};

use crate::{
    Call, Generated, Operation,
    generate::CudaKernel,
    space::index_type_below,
    text::{Function, Text, Threads, input_apart, result_apart},
    units::Unit,
};

/// The threads of a block.
const BLOCK: usize = 256;
/// The maximum number of parts of one function, whose parameters are limited.
const MOST_PARTS: usize = 64;

impl CudaKernel for Concatenation {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        let dtype = *call.results.first()?;
        let mut text = Text::default();
        let mut operations = Vec::new();
        for first in (0..self.lengths.len()).step_by(MOST_PARTS) {
            let parts = first..self.lengths.len().min(first + MOST_PARTS);
            if self.outer * self.lengths[parts.clone()].iter().sum::<usize>() > 0 {
                operations.push(write(&mut text, self, dtype, parts, prefix)?);
            }
        }
        Some(Generated { text: text.finish(), operations, workspace_bytes: 0 })
    }
}

fn write(
    text: &mut Text,
    it: &Concatenation,
    dtype: DType,
    parts: std::ops::Range<usize>,
    prefix: &str,
) -> Option<Operation> {
    let total: usize = it.lengths.iter().sum();
    let longest = it.lengths[parts.clone()].iter().max().copied().unwrap_or(0);
    let function = Function {
        name: format!("{prefix}_concatenate_{}", parts.start),
        parameters: parts
            .clone()
            .map(|it| input_apart(it, dtype))
            .chain([result_apart(0, dtype)])
            .collect(),
        threads: Threads::Independent,
        block: 256,
    };
    let n_parts = u32::try_from(parts.len()).ok()?;
    let mut fewest = usize::MAX;
    text.function(&function, |text| {
        let index_type = index_type_below(it.outer * total);
        text.line(format!(
            "const {index_type} index = ({index_type})blockIdx.x * {BLOCK}u + threadIdx.x;"
        ));
        for (number, part) in parts.clone().enumerate() {
            let (start, length) = (it.lengths[..part].iter().sum(), it.lengths[part]);
            let unit = Unit::of(dtype, &[start, length, total]);
            fewest = fewest.min(unit.length);
            let (start, length, total) =
                (start / unit.length, length / unit.length, total / unit.length);
            let (c_type, n) = (unit.c_type, it.outer * length);
            if n == 0 {
                continue;
            }
            let place = format!("index / {length}u * {total}u + index % {length}u + {start}u");
            let copy = format!("(({c_type}*)out0)[{place}] = (({c_type} const*)in{part})[index];");
            text.line(format!("if (blockIdx.y == {number}u && index < {n}u) {copy}"));
        }
    });
    // Enough blocks for the longest part, even if its units are the smallest.
    let n_blocks = u32::try_from((it.outer * longest / fewest).div_ceil(BLOCK)).ok()?;
    Some(function.launch([n_blocks, n_parts, 1]))
}
