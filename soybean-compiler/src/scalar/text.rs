//! The text form of scalar programs.

use std::fmt;

use soybean_plan::{Instruction, Register, ScalarProgram};

/// The text form of a program: its results as expressions over `x0`, `x1`, .. and `s0`, `s1`, ..
/// for run-time scalars.
pub struct ScalarText<'a>(pub &'a ScalarProgram);

impl ScalarText<'_> {
    fn expression(&self, register: Register) -> String {
        match self.0.instructions[register as usize] {
            Instruction::Input(input) => format!("x{input}"),
            Instruction::Scalar(scalar) => format!("s{scalar}"),
            Instruction::Constant(value) => format!("{value}"),
            Instruction::Unary(function, x) => {
                format!("{}({})", function.name(), self.expression(x))
            }
            Instruction::Binary(function, x, y) => {
                format!("{}({}, {})", function.name(), self.expression(x), self.expression(y))
            }
            Instruction::Select(condition, x, y) => format!(
                "select({}, {}, {})",
                self.expression(condition),
                self.expression(x),
                self.expression(y)
            ),
        }
    }
}

impl fmt::Display for ScalarText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let results: Vec<String> = self.0.results.iter().map(|&it| self.expression(it)).collect();
        f.write_str(&results.join(", "))
    }
}
