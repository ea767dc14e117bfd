//! CUDA C for [`Attention`]: scores stay in registers and shared memory.
//!
//! Gradients take three functions: the statistics of the rows of queries, then the gradients of
//! keys and values by tiles of keys, then those of queries by tiles of queries. The statistics
//! follow from the saved logarithms and the result, or take the loop of the forward function again.
//! One thread computes each sum, so results do not vary from run to run. Source: Dao,
//! "FlashAttention-2", 2023.

mod fma;
mod mma;
mod variants;

use std::ops::Range;

use soybean_plan::{Attention, AttentionBias, AttentionForm, DType, Precision, ScalarProgram};

use crate::{
    Address, Call, Generated, Operation,
    formula::{self, Element},
    generate::CudaKernel,
    product::{Units, grid},
    text::{
        Function, Parameter, Text, Threads, c_type, constant, input_apart, result_apart, workspace,
    },
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
        let mask = format!("{{{positions}, {of_queries}, {of_keys}, {bias}, {heads}, 0}}");
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
        let tiling = match self.units() {
            _ if part == Part::SavedStatistics => saved_statistics(),
            Units::Tensor { per_word } if mma::fits(self.it, part, per_word) => {
                mma::tiling(self.it, part, per_word, self.chosen_sizes(part))
            }
            Units::Tensor { .. } | Units::Single => fma::tiling(self.it, part),
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

    /// Writes the constants and the functions that rely on them.
    fn space(&self, text: &mut Text, part: Part, tiling: &Tiling) {
        let Attention { heads, group, queries, keys, features, width, .. } = *self.it;
        let Attention { is_causal, window, scale, .. } = *self.it;
        let one = AttentionBias { matrices: 1, repeats: 1, rows: 1 };
        let bias = self.it.bias.unwrap_or(one);
        let sizes = [
            ("GROUP", group),
            ("QUERIES", queries),
            ("KEYS", keys),
            ("FEATURES", features),
            ("WIDTH", width),
            ("WINDOW", window.unwrap_or(0)),
            ("SEGMENT_HEADS", heads * group / self.it.segments.unwrap_or(1)),
            ("BIAS_MATRICES", bias.matrices),
            ("BIAS_REPEATS", bias.repeats),
            ("BIAS_ROWS", bias.rows),
            ("HEAD_NUMBERS", self.it.n_head_numbers().unwrap_or(1)),
        ];
        for (name, value) in sizes.iter().chain(&self.alternating()).chain(&tiling.constants) {
            text.line(format!("constexpr int {name} = {value};"));
        }
        let flags = [
            ("IS_CAUSAL", is_causal),
            ("HAS_WINDOW", window.is_some()),
            ("HAS_POSITIONS", self.it.positions_input().is_some()),
            ("HAS_SEGMENTS", self.it.segments.is_some()),
            ("HAS_BIAS", self.it.bias.is_some()),
            ("HAS_FUNCTION", self.it.score.is_some()),
            ("HAS_SLOPE", self.it.score.as_ref().is_some_and(|it| it.slope.is_some())),
            ("HAS_HEADS", self.it.heads_input().is_some()),
            ("HAS_KEY_GRADIENT", part.has_key_gradient()),
            ("HAS_VALUE_GRADIENT", part.has_value_gradient()),
            ("SAVES_LOGARITHMS", self.it.saves_logarithms),
        ];
        for (name, flag) in flags {
            text.line(format!("constexpr bool {name} = {flag};"));
        }
        text.line(format!("constexpr float SCALE = {};", constant(scale)));
        let by_power = constant(scale * std::f64::consts::LOG2_E);
        text.line(format!("constexpr float LOG_SCALE = {by_power};"));
        let by_e = constant(std::f64::consts::LOG2_E);
        text.line(format!("constexpr float LOG_OF_E = {by_e};"));
        let by_2 = constant(std::f64::consts::LN_2);
        text.line(format!("constexpr float LOG_OF_2 = {by_2};"));
        // The elements of a head number at most 2^31, but those between its rows may be more.
        let is_dense = self.alternating().iter().all(|it| it.1 == 1);
        text.line(format!("typedef {} Offset;", if is_dense { "int" } else { "long long" }));
        self.types(text);
        let score = self.it.score.as_ref();
        write_function(text, "score_function", score.map(|it| &it.score));
        write_function(text, "score_slope", score.and_then(|it| it.slope.as_ref()));
        text.line(include_str!("attention/layout.cu"));
        text.line(include_str!("attention/mask.cu"));
        for it in tiling.texts {
            text.line(it);
        }
    }

    /// Returns the numbers of heads whose rows alternate in memory, by the names of constants.
    fn alternating(&self) -> [(&'static str, usize); 8] {
        let Attention { form, layout, .. } = *self.it;
        let [query, key, value, gradient] = layout.operands;
        let mut results = layout.results.into_iter();
        let mut next = |is_wanted: bool| match is_wanted {
            true => results.next().unwrap_or(1),
            false => 1,
        };
        [
            ("QUERY_HEADS", query),
            ("KEY_HEADS", key),
            ("VALUE_HEADS", value),
            ("GRADIENT_HEADS", gradient),
            ("RESULT_HEADS", next(form == AttentionForm::Forward)),
            ("QUERY_RESULT_HEADS", next(form.has_query_gradient())),
            ("KEY_RESULT_HEADS", next(form.has_key_gradient())),
            ("VALUE_RESULT_HEADS", next(form.has_value_gradient())),
        ]
    }

    /// Writes the types of the elements.
    fn types(&self, text: &mut Text) {
        let form = self.it.form;
        let of_bias = self.it.bias_input().map_or(DType::F32, |it| self.call.inputs[it]);
        text.line(format!("typedef {} Bias;", c_type(of_bias)));
        let operands = self.operand_types().iter().copied();
        let types = ["Query", "Key", "Value", "Gradient"].into_iter().zip(operands);
        let mut results = self.call.results.iter().copied();
        // A result that is not wanted has any type.
        let mut next = |is_wanted: bool| match is_wanted {
            true => results.next().unwrap_or(DType::F32),
            false => DType::F32,
        };
        let saved = self.it.saved_inputs().map(|it| self.call.inputs[it[0]]);
        let result = next(form == AttentionForm::Forward);
        let results = [
            ("Result", saved.unwrap_or(result)),
            ("QueryResult", next(form.has_query_gradient())),
            ("KeyResult", next(form.has_key_gradient())),
            ("ValueResult", next(form.has_value_gradient())),
        ];
        let gradient = (form == AttentionForm::Forward).then_some(("Gradient", DType::F32));
        for (name, dtype) in types.chain(gradient).chain(results) {
            text.line(format!("typedef {} {name};", c_type(dtype)));
        }
    }
}

/// Writes a function of the scaled product, the positions of query and key, and the head. One that
/// is missing is never called.
fn write_function(text: &mut Text, name: &str, program: Option<&ScalarProgram>) {
    let parameters = "float x0, int x1, int x2, int x3";
    text.block(format!("__device__ __forceinline__ float {name}({parameters})"), |text| {
        let input = |number| Element { text: format!("x{number}"), varies: true };
        let results = program.map(|it| formula::write(text, it, Precision::F32, input));
        let result = results.map_or("x0".to_owned(), |mut it| it.remove(0));
        text.line(format!("return {result};"));
    });
}

/// Returns the name at the end of a declaration.
fn name(declaration: &str) -> &str {
    declaration.rsplit(' ').next().unwrap_or(declaration)
}

#[cfg(test)]
mod tests;
