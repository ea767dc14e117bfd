//! Combination of values over a row, and sums of exponentials that are computed in one pass with
//! the maximum that is subtracted. Source: Milakov & Gimelshein 2018.

use soybean_plan::{Binary, Instruction, Register, RowFusion, RowStageForm, ScalarProgram, Unary};

use super::Writer;
use crate::{formula, text::Text};

/// The sum of `exp(x - max(x))` over a row, by the numbers of its stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OnlineSum {
    pub(super) max: usize,
    pub(super) sum: usize,
}

impl OnlineSum {
    /// Returns all such sums of a kernel, one for each maximum.
    pub(super) fn all(fusion: &RowFusion) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (sum, stage) in fusion.stages.iter().enumerate() {
            let max = (stage.form == RowStageForm::Sum)
                .then(|| subtracted_maximum(fusion, &stage.program))
                .flatten();
            if let Some(max) = max.filter(|max| all.iter().all(|it| it.max != *max)) {
                all.push(Self { max, sum });
            }
        }
        all
    }
}

/// Returns the maximum if a program gives the value of a stage `exp(x - max(x))`.
fn subtracted_maximum(fusion: &RowFusion, program: &ScalarProgram) -> Option<usize> {
    let stage_of = |program: &ScalarProgram, register: Register| match program.instructions
        [usize::from(register)]
    {
        Instruction::Input(number) => usize::from(number).checked_sub(fusion.inputs.len()),
        _ => None,
    };
    // The exponential is a stage of its own, or part of the sum.
    let stage = stage_of(program, program.results[0]);
    let exponential = stage.map_or(program, |it| &fusion.stages[it].program);
    let at = |register: Register| exponential.instructions[usize::from(register)];
    let Instruction::Unary(Unary::Exp, shifted) = at(exponential.results[0]) else { return None };
    let Instruction::Binary(Binary::Subtract, x, max) = at(shifted) else { return None };
    let max = stage_of(exponential, max)?;
    let maximum = &fusion.stages[max];
    let is_same = maximum.form == RowStageForm::Max
        && is_equal((exponential, x), (&maximum.program, maximum.program.results[0]));
    is_same.then_some(max)
}

/// Returns true if two registers have the same expression.
fn is_equal(one: (&ScalarProgram, Register), other: (&ScalarProgram, Register)) -> bool {
    let both = |x: Register, y: Register| is_equal((one.0, x), (other.0, y));
    let at = |it: (&ScalarProgram, Register)| it.0.instructions[usize::from(it.1)];
    match (at(one), at(other)) {
        (Instruction::Unary(f, x), Instruction::Unary(g, y)) => f == g && both(x, y),
        (Instruction::Binary(f, a, b), Instruction::Binary(g, c, d)) => {
            f == g && both(a, c) && both(b, d)
        }
        (Instruction::Select(a, b, c), Instruction::Select(d, e, f)) => {
            both(a, d) && both(b, e) && both(c, f)
        }
        (one, other) => one == other,
    }
}

impl Writer<'_> {
    /// Returns the number of values that a thread combines a stage into.
    pub(super) fn n_sums(&self, stage: usize) -> usize {
        let mut online = self.passes.online.iter();
        if online.any(|it| it.max == stage || it.sum == stage) { 1 } else { self.layout.width }
    }

    /// Writes the combination of a stage's value at a point with those of the thread's earlier
    /// points.
    pub(super) fn write_accumulation(&self, text: &mut Text, stage: usize) {
        let value = self.write_value(text, stage);
        let (number, combine) = (self.value(stage), self.combine(stage));
        if self.passes.online.iter().any(|it| it.max == stage) {
            text.line(format!("y{number}[i][e] = {value};"));
            return text.line(format!("top{number} = {combine}::combine(top{number}, {value});"));
        }
        text.line(format!("sums{number}[e] = {combine}::combine(sums{number}[e], {value});"));
    }

    /// Writes the start of a round of chunks, in which values and their maximum are computed.
    pub(super) fn write_running_maximum(
        &self,
        text: &mut Text,
        online: &OnlineSum,
        n_chunks: usize,
    ) {
        let max = self.value(online.max);
        text.line(format!("float y{max}[{n_chunks}][{}];", self.layout.width));
        text.line(format!("float top{max} = sums{max}[0];"));
    }

    /// Writes the addition of a round's exponentials. The sum is relative to the maximum so far.
    pub(super) fn write_running_sum(&self, text: &mut Text, online: &OnlineSum, n_chunks: usize) {
        let (max, sum) = (self.value(online.max), self.value(online.sum));
        text.block("", |text| {
            // A difference of infinities would be NaN, although a later maximum makes the term 0.
            text.line(format!(
                "const float base = top{max} == -SOYBEAN_INFINITY ? 0.0f : top{max};"
            ));
            let exp = formula::exp(self.precision);
            text.line(format!("sums{sum}[0] *= {exp}(sums{max}[0] - base);"));
            text.line("#pragma unroll");
            text.block(format!("for (int i = 0; i < {n_chunks}; ++i)"), |text| {
                text.line("#pragma unroll");
                let each = format!("for (int e = 0; e < {}; ++e)", self.layout.width);
                text.line(format!("{each} sums{sum}[0] += {exp}(y{max}[i][e] - base);"));
            });
            text.line(format!("sums{max}[0] = top{max};"));
        });
    }

    /// Writes the combination of the values of all threads of a row at the end of a pass.
    pub(super) fn write_combinations(&self, text: &mut Text, pass: usize) {
        for stage in self.passes.combined(self.fusion, pass) {
            let (number, combine) = (self.value(stage), self.combine(stage));
            if let Some(online) = self.passes.online.iter().find(|it| it.sum == stage) {
                let max = self.value(online.max);
                let exp = formula::exp(self.precision);
                text.line(format!("sums{number}[0] *= {exp}(sums{max}[0] - x{max});"));
            }
            text.line(format!("float x{number} = sums{number}[0];"));
            let n_sums = self.n_sums(stage);
            if n_sums > 1 {
                let each = format!("for (int e = 1; e < {n_sums}; ++e)");
                text.line(format!(
                    "{each} x{number} = {combine}::combine(x{number}, sums{number}[e]);"
                ));
            }
            match self.layout.n_threads {
                1 => {}
                n @ ..=32 => text
                    .line(format!("x{number} = soybean_combine_lanes<{combine}>(x{number}, {n});")),
                n => text.line(format!(
                    "x{number} = soybean_combine_block<{combine}, {}>(x{number}, scratch);",
                    n / 32
                )),
            }
        }
    }
}
