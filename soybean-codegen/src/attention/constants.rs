//! The constants and types on which the functions of attention rely.

use soybean_plan::{Attention, AttentionBias, AttentionForm, DType, Precision, ScalarProgram};

use super::{Part, Tiling, Writer};
use crate::{
    formula::{self, Element},
    text::{Text, c_type, constant},
};

impl Writer<'_> {
    /// Writes the constants and the functions that rely on them.
    pub(super) fn space(&self, text: &mut Text, part: Part, tiling: &Tiling) {
        let Attention { heads, group, queries, keys, features, width, .. } = *self.it;
        let Attention { is_causal, window, halo, scale, .. } = *self.it;
        let one = AttentionBias { matrices: 1, repeats: 1, rows: 1 };
        let bias = self.it.bias.unwrap_or(one);
        let sizes = [
            ("GROUP", group),
            ("QUERIES", queries),
            ("KEYS", keys),
            ("FEATURES", features),
            ("WIDTH", width),
            ("WINDOW", window.unwrap_or(0)),
            ("HALO", halo.unwrap_or(0)),
            ("SEGMENT_HEADS", heads * group / self.it.segments.unwrap_or(1)),
            ("BIAS_MATRICES", bias.matrices),
            ("BIAS_REPEATS", bias.repeats),
            ("BIAS_ROWS", bias.rows),
            ("HEAD_NUMBERS", self.it.n_head_numbers().unwrap_or(1)),
        ];
        let sizes = sizes.into_iter().chain(self.alternating());
        text.constants("int", sizes.chain(tiling.constants.iter().copied()));
        let flags = [
            ("IS_CAUSAL", is_causal),
            ("HAS_WINDOW", window.is_some()),
            ("HAS_POSITIONS", self.it.positions_input().is_some() && halo.is_none()),
            ("HAS_HALO", self.it.positions_input().is_some() && halo.is_some()),
            ("HAS_SEGMENTS", self.it.segments.is_some()),
            ("HAS_BIAS", self.it.bias.is_some()),
            ("HAS_FUNCTION", self.it.score.is_some()),
            ("HAS_SLOPE", self.it.score.as_ref().is_some_and(|it| it.slope.is_some())),
            ("HAS_HEADS", self.it.heads_input().is_some()),
            ("HAS_KEY_GRADIENT", part.has_key_gradient()),
            ("HAS_VALUE_GRADIENT", part.has_value_gradient()),
            ("SAVES_LOGARITHMS", self.it.saves_logarithms),
        ];
        text.constants("bool", flags);
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
        text.line(include_str!("layout.cu"));
        text.line(include_str!("mask.cu"));
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
