//! Scalar programs in the padding of dims.

use soybean_plan::{Register, ScalarProgram};

use super::{Known, ScalarBuilder, inputs, known_result};

/// Returns the program that gives `fill` where an index is not below its extent: `indices` are
/// pairs of the input with the index and the extent.
pub(crate) fn masked(program: &ScalarProgram, indices: &[(u8, usize)], fill: f64) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let n_inputs = inputs(program).last().map_or(0, |it| it + 1);
    let registers: Vec<Register> = (0..n_inputs).map(|it| builder.input(it)).collect();
    let mut result = builder.append(program, &registers)[0];
    let fill = if builder.is_integer(result) {
        #[expect(clippy::cast_possible_truncation, reason = "as stores of integers round")]
        builder.integer_constant(fill as i32)
    } else {
        builder.constant(fill)
    };
    for &(input, extent) in indices {
        let extent = i32::try_from(extent).expect("extents are far below 2^31");
        let (extent, index) = (builder.integer_constant(extent), builder.integer(input));
        let is_inside = builder.greater(extent, index);
        result = builder.select(is_inside, result, fill);
    }
    builder.finish(result)
}

/// Returns the result of a program if it follows from the inputs marked in `is_zero`, which are 0.
pub(crate) fn result_in_padding(program: &ScalarProgram, is_zero: &[bool]) -> Option<f64> {
    let known = |is_zero: &bool| if *is_zero { Known::Value(0.0) } else { Known::Nothing };
    match known_result(program, &is_zero.iter().map(known).collect::<Vec<_>>()) {
        Known::Value(value) => Some(value),
        Known::Finite(_) | Known::Nothing => None,
    }
}
