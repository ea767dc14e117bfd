//! Programs that give one of their inputs unchanged.

use soybean_plan::{Binary, Instruction, Register, ScalarProgram, Unary};

use super::known::{Known, known_registers};

/// Returns whether the result of a program is its input `kept`, given what is known of its inputs.
pub(crate) fn keeps_input(program: &ScalarProgram, kept: u8, inputs: &[Known]) -> bool {
    let known = known_registers(program, inputs);
    let is = |register: Register, value: f64| known[usize::from(register)] == Known::Value(value);
    let mut is_kept: Vec<bool> = Vec::with_capacity(program.instructions.len());
    for instruction in program.instructions.iter() {
        let of = |register: Register| is_kept[usize::from(register)];
        is_kept.push(match *instruction {
            Instruction::Input(input) => input == kept,
            Instruction::Unary(Unary::Detach, x) => of(x),
            Instruction::Binary(Binary::Add, x, y) => of(x) && is(y, 0.0) || of(y) && is(x, 0.0),
            Instruction::Binary(Binary::Subtract, x, y) => of(x) && is(y, 0.0),
            Instruction::Binary(Binary::Multiply, x, y) => {
                of(x) && is(y, 1.0) || of(y) && is(x, 1.0)
            }
            Instruction::Binary(Binary::Divide, x, y) => of(x) && is(y, 1.0),
            Instruction::Select(condition, x, y) => match known[usize::from(condition)] {
                Known::Value(0.0) => of(y),
                Known::Value(_) => of(x),
                Known::Finite(_) | Known::Nothing => of(x) && of(y),
            },
            Instruction::Integer(_)
            | Instruction::Scalar(_)
            | Instruction::Constant(_)
            | Instruction::IntegerConstant(_)
            | Instruction::Unary(..)
            | Instruction::Binary(..) => false,
        });
    }
    is_kept[usize::from(program.results[0])]
}
