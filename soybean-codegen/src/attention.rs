//! CUDA C for [`Attention`]: scores stay in registers and shared memory.
//!
//! Gradients take three functions: the statistics of the rows of queries, then the gradients of
//! keys and values by tiles of keys, then those of queries by tiles of queries. The statistics
//! follow from the saved logarithms and the result, or take the loop of the forward function again.
//! One thread computes each sum, so results do not vary from run to run. Source: Dao,
//! "FlashAttention-2", 2023.

mod constants;
mod fma;
mod mma;
mod variants;

use std::ops::Range;

use soybean_plan::{Attention, AttentionForm, DType};

use crate::{
    Address, Call, Generated, Operation,
    generate::CudaKernel,
    product::{Units, grid},
    text::{Function, Parameter, Text, Threads, input_apart, result_apart, workspace},
};

/// The maximum number of elements of a query, a key or a value.
const MOST_ELEMENTS: usize = 256;

/// The maximum number of heads whose rows alternate. The elements of these rows of the largest tile
/// can be counted in 32 bits.
pub(crate) const MOST_ALTERNATING: usize = 1 << 15;

/// The computation of one of the functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Forward,
    Statistics,
    SavedStatistics,
    KeyAndValueGradients,
    KeyGradients,
    ValueGradients,
    QueryGradients,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Statistics => "statistics",
            Self::SavedStatistics => "saved_statistics",
            Self::KeyAndValueGradients => "key_and_value_gradients",
            Self::KeyGradients => "key_gradients",
            Self::ValueGradients => "value_gradients",
            Self::QueryGradients => "query_gradients",
        }
    }

    /// Returns the name of the function in the texts.
    const fn text_name(self) -> &'static str {
        if self.is_by_keys() { "key_gradients" } else { self.name() }
    }

    const fn has_key_gradient(self) -> bool {
        matches!(self, Self::KeyAndValueGradients | Self::KeyGradients)
    }

    const fn has_value_gradient(self) -> bool {
        matches!(self, Self::KeyAndValueGradients | Self::ValueGradients)
    }

    /// Returns whether the rows of a block are keys; otherwise they are queries.
    const fn is_by_keys(self) -> bool {
        self.has_key_gradient() || self.has_value_gradient()
    }
}

/// The implementation of a part.
struct Tiling {
    /// The source of the functions, which relies on the constants.
    texts: &'static [&'static str],
    constants: Vec<(&'static str, usize)>,
    /// The number of queries, or of keys, of a block.
    rows: usize,
    threads: u32,
    /// The number of blocks for which a multiprocessor must have registers. The compiler would
    /// spill a few to have room for more.
    min_blocks: u32,
    /// The shared memory in words of 4 bytes.
    n_words: usize,
}

/// Returns the functions for any sizes that the tiles can hold.
impl CudaKernel for Attention {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        self.generate_variant(call, 0, prefix)
    }

    fn n_variants(&self, call: &Call<'_>) -> usize {
        Writer { it: self, call, prefix: "", variant: 0 }.n_variants()
    }

    fn generate_variant(&self, call: &Call<'_>, variant: usize, prefix: &str) -> Option<Generated> {
        let Attention { form, heads, group, queries, keys, features, width, scale, .. } = *self;
        let n_results: Vec<usize> = self.result_lengths().iter().map(|it| heads * it).collect();
        if n_results.iter().all(|it| *it == 0) {
            return Some(Generated::default());
        }
        if queries * keys * width == 0 {
            return Some(zeros(call, &n_results));
        }
        let alternating = self.layout.operands.into_iter().chain(self.layout.results).max();
        let is_small = features.max(width) <= MOST_ELEMENTS
            && features > 0
            && scale.is_finite()
            && alternating <= Some(MOST_ALTERNATING);
        let most = 2 * keys.max(queries).max(self.window.unwrap_or(0)) * (features + width);
        if !is_small || i32::try_from(most).is_err() {
            return None;
        }
        let writer = Writer { it: self, call, prefix, variant };
        let statistics = (heads * group * queries * 4).next_multiple_of(256);
        let tables = |constness: &str| {
            [
                workspace(format!("{constness}float* __restrict__ logarithm"), 0),
                workspace(format!("{constness}float* __restrict__ mean"), statistics),
            ]
        };
        if form == AttentionForm::Forward {
            let results = (0..n_results.len()).map(|it| writer.result(it)).collect();
            return writer.generated(&[(Part::Forward, results)], 0);
        }
        let with = |results: Range<usize>| {
            let results = results.map(|it| writer.result(it));
            tables("const ").into_iter().chain(results).collect()
        };
        let of_rows = match self.saved_inputs() {
            Some(saved) => {
                let saved = saved.map(|it| input_apart(it, call.inputs[it]));
                (Part::SavedStatistics, saved.into_iter().chain(tables("")).collect())
            }
            None => (Part::Statistics, tables("").to_vec()),
        };
        let mut parts = vec![of_rows];
        let of_keys = usize::from(form.has_query_gradient());
        let of_values = of_keys + usize::from(form.has_key_gradient());
        match (form.has_key_gradient(), form.has_value_gradient()) {
            (true, true) if writer.joins_gradients() => {
                parts.push((Part::KeyAndValueGradients, with(of_keys..of_values + 1)));
            }
            (has_keys, has_values) => {
                let of_keys = (Part::KeyGradients, with(of_keys..of_values));
                parts.extend(has_keys.then_some(of_keys));
                let of_values = || (Part::ValueGradients, with(of_values..of_values + 1));
                parts.extend(has_values.then(of_values));
            }
        }
        if form.has_query_gradient() {
            parts.push((Part::QueryGradients, with(0..1)));
        }
        writer.generated(&parts, 2 * statistics)
    }
}

/// Each warp has a row.
fn saved_statistics() -> Tiling {
    let rows = 8;
    Tiling {
        texts: &[include_str!("attention/saved_statistics.cu")],
        constants: vec![("ROWS", rows)],
        rows,
        threads: 256,
        min_blocks: 1,
        n_words: 0,
    }
}

/// Without queries, keys or values, all results are 0.
fn zeros(call: &Call<'_>, n_results: &[usize]) -> Generated {
    let fill = |(number, (n, dtype)): (usize, (&usize, &DType))| Operation::Fill {
        target: Address::Result(number),
        n_bytes: n * dtype.bytes(),
        value: 0,
    };
    let results = n_results.iter().zip(call.results).enumerate();
    let operations = results.filter(|(_, (n, _))| **n > 0).map(fill).collect();
    Generated { operations, ..Generated::default() }
}

/// Writes the functions of a kernel.
struct Writer<'a> {
    it: &'a Attention,
    call: &'a Call<'a>,
    prefix: &'a str,
    /// The number of the variant: for each of the parts that have a choice of tiles, the number of
    /// its tiles as a digit.
    variant: usize,
}

impl Writer<'_> {
    fn result(&self, number: usize) -> Parameter {
        result_apart(number, self.call.results[number])
    }

    /// Returns the arguments for the function of a part: operands, the mask, tables and results. An
    /// argument that this kernel does not have is a null pointer.
    fn arguments(&self, part: Part, parameters: &[Parameter]) -> Vec<String> {
        let names: Vec<&str> = parameters.iter().map(|it| name(&it.declaration)).collect();
        let (n_operands, n_inputs) = (self.it.input_lengths().len(), self.n_inputs());
        let name = |number: Option<usize>| number.map_or("nullptr", |it| names[it]);
        let [of_queries, of_keys] =
            self.it.segment_inputs().map_or([None; 2], |it| it.map(Some)).map(name);
        let [positions, bias, heads] =
            [self.it.positions_input(), self.it.bias_input(), self.it.heads_input()].map(name);
        let mask = format!("{{{positions}, {of_queries}, {of_keys}, {bias}, {heads}, 0, 0}}");
        let mut arguments: Vec<String> =
            names[..n_operands].iter().map(ToString::to_string).collect();
        arguments.push(mask);
        arguments.extend(names[n_inputs..].iter().map(ToString::to_string));
        match part {
            Part::Forward if self.it.saves_logarithms => {}
            Part::Forward | Part::KeyGradients => arguments.push("nullptr".to_owned()),
            Part::ValueGradients => arguments.insert(arguments.len() - 1, "nullptr".to_owned()),
            Part::Statistics
            | Part::SavedStatistics
            | Part::KeyAndValueGradients
            | Part::QueryGradients => {}
        }
        arguments
    }

    /// Returns the number of inputs that are read.
    fn n_inputs(&self) -> usize {
        let n = self.it.input_lengths().len() + self.it.mask_lengths().len();
        n - usize::from(self.it.has_positions() && !self.it.is_part)
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

    /// Returns the types of queries, keys, values and the gradient of the result.
    fn operand_types(&self) -> &[DType] {
        &self.call.inputs[..self.it.input_lengths().len()]
    }

    /// Returns the units for the products of these types; positions are none of them.
    fn units(&self) -> Units {
        Units::new(&Call { inputs: self.operand_types(), ..*self.call })
    }

    /// Returns true if one function computes the gradients of keys and of values. Their sums may
    /// not fit into registers together.
    fn joins_gradients(&self) -> bool {
        match self.units() {
            Units::Tensor { per_word } => mma::joins_gradients(self.it, per_word),
            Units::Single => true,
        }
    }

    fn function(&self, text: &mut Text, part: Part, more: &[Parameter]) -> Option<Operation> {
        let tiling = match (self.units(), self.chosen_sizes(part)) {
            _ if part == Part::SavedStatistics => saved_statistics(),
            (Units::Tensor { per_word }, Some(sizes)) => {
                mma::tiling(self.it, part, per_word, sizes)
            }
            _ => fma::tiling(self.it, part),
        };
        let inputs = self.call.inputs[..self.n_inputs()].iter().enumerate();
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
        text.block(format!("namespace {space}"), |text| self.space(text, part, &tiling));
        let bounds = format!("{}, {}", tiling.threads, tiling.min_blocks);
        text.function_within(&function, &bounds, |text| {
            let arguments = self.arguments(part, &function.parameters);
            text.line(format!("{space}::{}({});", part.text_name(), arguments.join(", ")));
        });
        // A block of the gradients of keys adds up those of all heads of queries in their order.
        let (group, n_rows) = match part.is_by_keys() {
            true => (1, self.it.keys),
            false => (self.it.group, self.it.queries),
        };
        let n_blocks = self.it.heads * group * n_rows.div_ceil(tiling.rows);
        Some(function.launch_with(grid(n_blocks)?, u32::try_from(4 * tiling.n_words).ok()?))
    }
}

/// Returns the name at the end of a declaration.
fn name(declaration: &str) -> &str {
    declaration.rsplit(' ').next().unwrap_or(declaration)
}

#[cfg(test)]
mod tests;
