//! CUDA C for [`Ranking`]: each thread counts the elements that come before its own.

use soybean_plan::{Ranking, RankingForm};

use crate::{
    Call, Generated,
    generate::CudaKernel,
    space::index_type_below,
    text::{Function, Text, Threads, input_apart, result_apart},
};

/// The threads of a block.
const BLOCK: usize = 256;

impl CudaKernel for Ranking {
    // Neighboring threads read the same elements, or neighboring ones, at the same time.
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        let Self { form, outer, length, inner } = *self;
        let n = outer * length * inner;
        if n == 0 {
            return Some(Generated::default());
        }
        let function = Function {
            name: format!("{prefix}_rank"),
            parameters: vec![
                input_apart(0, *call.inputs.first()?),
                result_apart(0, *call.results.first()?),
            ],
            threads: Threads::Independent,
            block: 256,
        };
        // What comes before x, whatever their indices are.
        let is_before = match form {
            RankingForm::Ascending => "y < x || (x != x && y == y)",
            RankingForm::Descending => "y > x || (y != y && x == x)",
        };
        let index_type = index_type_below(n);
        let mut text = Text::default();
        text.function(&function, |text| {
            text.line(format!(
                "const {index_type} at = ({index_type})blockIdx.x * {BLOCK}u + threadIdx.x;"
            ));
            text.line(format!("if (at >= {n}u) return;"));
            text.line(format!("const unsigned row = at / {inner}u % {length}u;"));
            text.line(format!("const {index_type} first = at - ({index_type})row * {inner}u;"));
            text.line("const float x = soybean_value(in0[at]);");
            text.line("int place = 0;");
            text.block(format!("for (unsigned other = 0; other < {length}u; ++other)"), |text| {
                text.line(format!(
                    "const float y = soybean_value(in0[first + ({index_type})other * {inner}u]);"
                ));
                text.line("const bool is_equal = x == y || (x != x && y != y);");
                text.line(format!("place += ({is_before}) || (is_equal && other < row);"));
            });
            text.line("out0[at] = place;");
        });
        let n_blocks = u32::try_from(n.div_ceil(BLOCK)).ok()?;
        let operations = vec![function.launch([n_blocks, 1, 1])];
        Some(Generated { text: text.finish(), operations, workspace_bytes: 0 })
    }
}
