//! Programs that change nothing where a number is not finite, and those that are 0 where one is.

use soybean_plan::{Register, ScalarProgram};

use super::{ScalarBuilder, inputs};
use crate::signature::factor_id;

impl ScalarBuilder {
    /// Returns 1 where all of these numbers are finite, else 0.
    // 0 x is 0 if x is finite, else not a number.
    pub(crate) fn are_finite(&mut self, numbers: &[Register]) -> Register {
        let zero = self.constant(0.0);
        let mut sum = zero;
        for number in numbers {
            let term = self.scale(*number, 0.0);
            sum = self.add(sum, term);
        }
        self.equal(sum, zero)
    }
}

/// Returns the program with the result of `program`, but 0 where the input at this position is 0.
pub(crate) fn zero_where_zero(program: &ScalarProgram, input: usize) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let n_inputs = inputs(program).last().map_or(0, |it| it + 1);
    let registers: Vec<Register> = (0..n_inputs).map(|it| builder.input(it)).collect();
    let result = builder.append(program, &registers)[0];
    let (number, zero) = (builder.input(factor_id(input)), builder.constant(0.0));
    let is_zero = builder.equal(number, zero);
    let gated = builder.select(is_zero, zero, result);
    builder.finish(gated)
}

/// Returns the program with the results of `program` if the inputs `numbers` are finite. Otherwise
/// a result is the input `before` it, if there is one.
pub(crate) fn guarded(
    program: &ScalarProgram,
    numbers: &[u8],
    before: &[Option<u8>],
) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let n_inputs = inputs(program).last().map_or(0, |it| it + 1);
    let registers: Vec<Register> = (0..n_inputs).map(|it| builder.input(it)).collect();
    let results = builder.append(program, &registers);
    let numbers: Vec<Register> = numbers.iter().map(|it| builder.input(*it)).collect();
    let are_finite = builder.are_finite(&numbers);
    let mut guarded = |(result, before): (Register, &Option<u8>)| match before {
        Some(before) => {
            let before = builder.input(*before);
            builder.select(are_finite, result, before)
        }
        None => result,
    };
    let results: Vec<Register> = results.into_iter().zip(before).map(&mut guarded).collect();
    builder.finish_all(&results)
}
