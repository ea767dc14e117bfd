//! Scalar programs in the padding of dims.

use soybean_plan::{Binary, Instruction, Register, ScalarProgram};

use super::{ScalarBuilder, inputs};

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

/// The abstract value of a register: what is known of it before the program runs.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    /// Its value.
    Value(f64),
    /// That it is neither infinite nor NaN.
    Finite,
    Nothing,
}

/// Returns the result of a program if it follows from the inputs marked in `is_zero`, which are 0.
pub(crate) fn result_in_padding(program: &ScalarProgram, is_zero: &[bool]) -> Option<f64> {
    let mut registers: Vec<Known> = Vec::with_capacity(program.instructions.len());
    for instruction in program.instructions.iter() {
        let of = |register: Register| registers[usize::from(register)];
        registers.push(match *instruction {
            Instruction::Input(input) if is_zero[usize::from(input)] => Known::Value(0.0),
            Instruction::Input(_) | Instruction::Integer(_) => Known::Nothing,
            // Learning rates and the other run-time scalars are finite.
            Instruction::Scalar(_) => Known::Finite,
            Instruction::Constant(value) => Known::Value(value),
            Instruction::IntegerConstant(value) => Known::Value(value.into()),
            Instruction::Unary(function, x) => match of(x) {
                Known::Value(x) => Known::Value(function.evaluate(x)),
                Known::Finite | Known::Nothing => Known::Nothing,
            },
            Instruction::Binary(function, x, y) => match (function, of(x), of(y)) {
                (_, Known::Value(x), Known::Value(y)) => Known::Value(function.evaluate(x, y)),
                (Binary::Multiply, Known::Value(0.0), Known::Finite)
                | (Binary::Multiply, Known::Finite, Known::Value(0.0)) => Known::Value(0.0),
                _ => Known::Nothing,
            },
            Instruction::Select(condition, x, y) => match of(condition) {
                Known::Value(0.0) => of(y),
                Known::Value(_) => of(x),
                Known::Finite | Known::Nothing if of(x) == of(y) => of(x),
                Known::Finite | Known::Nothing => Known::Nothing,
            },
        });
    }
    match registers[usize::from(program.results[0])] {
        Known::Value(value) => Some(value),
        Known::Finite | Known::Nothing => None,
    }
}
