//! CUDA C for [`Attention`]: scores stay in registers and shared memory.
//!
//! Gradients take three functions: the statistics of the rows of queries, then the gradients of
//! keys and values by tiles of keys, then those of queries by tiles of queries. One thread computes
//! each sum, so results do not vary from run to run. Source: Dao, "FlashAttention-2", 2023.

mod fma;
mod mma;

use soybean_plan::{Attention, AttentionForm};

use crate::{
    Address, Call, Generated, Operation,
    generate::CudaKernel,
    product::{Units, grid},
    text::{
        Function, Parameter, Text, Threads, c_type, constant, input_apart, result_apart, workspace,
    },
};

/// The maximum number of elements of a query, a key or a value.
const MOST_ELEMENTS: usize = 256;

/// The computation of one of the functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Forward,
    Statistics,
    KeyGradients,
    QueryGradients,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Statistics => "statistics",
            Self::KeyGradients => "key_gradients",
            Self::QueryGradients => "query_gradients",
        }
    }
}

/// The implementation of a part.
struct Tiling {
    /// The source of the functions, which relies on the constants.
    texts: [&'static str; 2],
    constants: Vec<(&'static str, usize)>,
    /// The number of queries, or of keys, of a block.
    rows: usize,
    threads: u32,
    /// The shared memory in words of 4 bytes.
    n_words: usize,
}

/// Returns the functions for any sizes that the tiles can hold.
impl CudaKernel for Attention {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        let Attention { form, heads, queries, keys, features, width, scale, .. } = *self;
        let (query, key, value) = (queries * features, keys * features, keys * width);
        let n_results = match form {
            AttentionForm::Forward => heads * queries * width,
            AttentionForm::Gradient => heads * (query + key + value),
        };
        if n_results == 0 {
            return Some(Generated::default());
        }
        if queries * keys * width == 0 {
            return Some(zeros(n_results * call.results[0].bytes()));
        }
        let is_small = features.max(width) <= MOST_ELEMENTS && features > 0 && scale.is_finite();
        let fits = i32::try_from(query + key + value + queries * width).is_ok();
        if !is_small || !fits {
            return None;
        }
        let writer = Writer { it: self, call, prefix };
        let statistics = (heads * queries * 4).next_multiple_of(256);
        let tables = |constness: &str| {
            [
                workspace(format!("{constness}float* __restrict__ logarithm"), 0),
                workspace(format!("{constness}float* __restrict__ mean"), statistics),
            ]
        };
        match form {
            AttentionForm::Forward => {
                writer.generated(&[(Part::Forward, vec![writer.result()])], 0)
            }
            AttentionForm::Gradient => {
                let with_result =
                    || tables("const ").into_iter().chain([writer.result()]).collect();
                let parts = [
                    (Part::Statistics, tables("").to_vec()),
                    (Part::KeyGradients, with_result()),
                    (Part::QueryGradients, with_result()),
                ];
                writer.generated(&parts, 2 * statistics)
            }
        }
    }
}

/// Without queries, keys or values, all results are 0.
fn zeros(n_bytes: usize) -> Generated {
    let fill = Operation::Fill { target: Address::Result(0), n_bytes, value: 0 };
    Generated { operations: vec![fill], ..Generated::default() }
}

/// Writes the functions of a kernel.
struct Writer<'a> {
    it: &'a Attention,
    call: &'a Call<'a>,
    prefix: &'a str,
}

impl Writer<'_> {
    fn result(&self) -> Parameter {
        result_apart(0, self.call.results[0])
    }

    /// Returns the functions for these parts, each with the parameters that follow the inputs.
    fn generated(
        &self,
        parts: &[(Part, Vec<Parameter>)],
        workspace_bytes: usize,
    ) -> Option<Generated> {
        let mut text = Text::default();
        let operations = parts
            .iter()
            .map(|(part, more)| self.function(&mut text, *part, more))
            .collect::<Option<_>>()?;
        Some(Generated { text: text.finish(), operations, workspace_bytes })
    }

    fn function(&self, text: &mut Text, part: Part, more: &[Parameter]) -> Option<Operation> {
        let tiling = match Units::new(self.call) {
            Units::Tensor { per_word } if mma::fits(self.it, part) => {
                mma::tiling(self.it, part, per_word)
            }
            Units::Tensor { .. } | Units::Single => fma::tiling(self.it, part),
        };
        let inputs = self.call.inputs.iter().enumerate();
        let function = Function {
            name: format!("{}{}", self.prefix, part.name()),
            parameters: inputs
                .map(|(number, dtype)| input_apart(number, *dtype))
                .chain(more.iter().cloned())
                .collect(),
            threads: Threads::Cooperating,
            block: tiling.threads,
        };
        // A namespace for each function allows the same constants to have other values there.
        let space = format!("{}text", function.name);
        text.block(format!("namespace {space}"), |text| self.space(text, &tiling));
        text.function(&function, |text| {
            let names: Vec<_> =
                function.parameters.iter().map(|it| name(&it.declaration)).collect();
            text.line(format!("{space}::{}({});", part.name(), names.join(", ")));
        });
        let n_rows = if part == Part::KeyGradients { self.it.keys } else { self.it.queries };
        let n_blocks = self.it.heads * n_rows.div_ceil(tiling.rows);
        Some(function.launch_with(grid(n_blocks)?, u32::try_from(4 * tiling.n_words).ok()?))
    }

    /// Writes the constants and the functions that rely on them.
    fn space(&self, text: &mut Text, tiling: &Tiling) {
        let Attention { queries, keys, features, width, is_causal, scale, .. } = *self.it;
        let sizes =
            [("QUERIES", queries), ("KEYS", keys), ("FEATURES", features), ("WIDTH", width)];
        for (name, value) in sizes.iter().chain(&tiling.constants) {
            text.line(format!("constexpr int {name} = {value};"));
        }
        text.line(format!("constexpr bool IS_CAUSAL = {is_causal};"));
        text.line(format!("constexpr float SCALE = {};", constant(scale)));
        let by_power = constant(scale * std::f64::consts::LOG2_E);
        text.line(format!("constexpr float LOG_SCALE = {by_power};"));
        let gradient = self.call.inputs.last().copied();
        let types = ["Query", "Key", "Value"].into_iter().zip(self.call.inputs.iter().copied());
        let last = gradient.map(|dtype| ("Gradient", dtype));
        for (name, dtype) in types.chain(last).chain([("Result", self.call.results[0])]) {
            text.line(format!("typedef {} {name};", c_type(dtype)));
        }
        for it in tiling.texts {
            text.line(it);
        }
    }
}

/// Returns the name at the end of a declaration.
fn name(declaration: &str) -> &str {
    declaration.rsplit(' ').next().unwrap_or(declaration)
}

#[cfg(test)]
mod tests {
    use soybean_plan::{DType, Kernel, Precision};

    use super::*;

    fn generated(features: usize, width: usize, precision: Precision) -> Option<Generated> {
        let kernel = Kernel::from(Attention {
            form: AttentionForm::Gradient,
            heads: 2,
            queries: 100,
            keys: 100,
            features,
            width,
            is_causal: true,
            scale: 0.125,
        });
        let inputs = [DType::F32; 4];
        let results = [DType::F32];
        let call = Call { kernel: &kernel, inputs: &inputs, results: &results, precision };
        crate::generate(&call, "k")
    }

    #[test]
    fn tiles_of_all_sizes_fit_into_shared_memory() {
        // The limits of a block on GPUs of compute capability 8.0. Source: CUDA C++ Programming
        // Guide, technical specifications.
        const MOST_BYTES: u32 = 163 << 10;
        let sizes: Vec<usize> = (1..=256).step_by(17).chain([64, 128, 256]).collect();
        for (features, width) in sizes.iter().flat_map(|it| sizes.iter().map(move |n| (*it, *n))) {
            for precision in Precision::ALL {
                let operations = generated(features, width, precision).unwrap().operations;
                assert_eq!(operations.len(), 3);
                for operation in operations {
                    let Operation::Launch(launch) = operation else { panic!("{operation:?}") };
                    assert!(launch.shared_bytes <= MOST_BYTES, "{features} {width} {launch:?}");
                }
            }
        }
    }

    #[test]
    fn larger_sizes_have_no_text() {
        assert_eq!(generated(257, 8, Precision::F32), None);
        assert_eq!(generated(8, 257, Precision::F32), None);
    }
}
