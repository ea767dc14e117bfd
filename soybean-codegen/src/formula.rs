//! Scalar programs as CUDA C.

use std::collections::BTreeSet;

use soybean_plan::{Binary, Instruction, ScalarProgram, Unary};

use crate::{
    Address,
    text::{Parameter, Text, constant},
};

/// Returns the parameter for run-time scalars, if the program reads any.
pub(crate) fn scalars(program: &ScalarProgram) -> Option<Parameter> {
    let reads = |it: &Instruction| matches!(it, Instruction::Scalar(_));
    let declaration = "const float* __restrict__ scalars".to_owned();
    program
        .instructions
        .iter()
        .any(reads)
        .then_some(Parameter { declaration, argument: Address::Scalars })
}

/// Writes a constant `s0` for each run-time scalar that the program reads.
pub(crate) fn write_scalars(text: &mut Text, program: &ScalarProgram) {
    let number = |it: &Instruction| match it {
        Instruction::Scalar(number) => Some(*number),
        Instruction::Input(_)
        | Instruction::Integer(_)
        | Instruction::Constant(_)
        | Instruction::IntegerConstant(_)
        | Instruction::Unary(..)
        | Instruction::Binary(..)
        | Instruction::Select(..) => None,
    };
    let numbers: BTreeSet<u8> = program.instructions.iter().filter_map(number).collect();
    for number in numbers {
        text.line(format!("const float s{number} = scalars[{number}];"));
    }
}

/// Writes a constant `r0` for each register and returns the results; `input` is the expression for
/// the element of an input.
pub(crate) fn write(
    text: &mut Text,
    program: &ScalarProgram,
    input: impl Fn(usize) -> String,
) -> Vec<String> {
    let integers = program.integers();
    for (register, instruction) in program.instructions.iter().enumerate() {
        let c_type = if integers[register] { "int" } else { "float" };
        let value = match *instruction {
            Instruction::Input(number) | Instruction::Integer(number) => input(usize::from(number)),
            Instruction::Scalar(number) => format!("s{number}"),
            Instruction::Constant(value) => constant(value),
            // The least integer has no literal.
            Instruction::IntegerConstant(i32::MIN) => "-2147483647 - 1".to_owned(),
            Instruction::IntegerConstant(value) => value.to_string(),
            Instruction::Unary(function, a) => unary(function, a),
            Instruction::Binary(function, a, b) => binary(function, a, b),
            Instruction::Select(a, b, c) => format!("r{a} == 0.0f ? r{c} : r{b}"),
        };
        text.line(format!("const {c_type} r{register} = {value};"));
    }
    program.results.iter().map(|it| format!("r{it}")).collect()
}

fn unary(function: Unary, a: u16) -> String {
    let name = match function {
        Unary::Negate => "-",
        Unary::Relu => "soybean_relu",
        Unary::Exp => "expf",
        Unary::Log => "logf",
        Unary::Sqrt => "sqrtf",
        Unary::Tanh => "tanhf",
        Unary::Sigmoid => "soybean_sigmoid",
        Unary::Erf => "erff",
        Unary::Expm1 => "expm1f",
        Unary::Log1p => "log1pf",
        Unary::Sin => "sinf",
        Unary::Cos => "cosf",
        Unary::Floor => "floorf",
        Unary::Round => "rintf",
        Unary::Detach => "",
        Unary::Float => "(float)",
    };
    format!("{name}(r{a})")
}

fn binary(function: Binary, a: u16, b: u16) -> String {
    match function {
        Binary::Add => format!("r{a} + r{b}"),
        Binary::Subtract => format!("r{a} - r{b}"),
        Binary::Multiply => format!("r{a} * r{b}"),
        Binary::Divide => format!("r{a} / r{b}"),
        Binary::Maximum => format!("soybean_maximum(r{a}, r{b})"),
        Binary::Power => format!("powf(r{a}, r{b})"),
        Binary::Equal | Binary::EqualIntegers => format!("r{a} == r{b} ? 1.0f : 0.0f"),
        Binary::Greater | Binary::GreaterInteger => format!("r{a} > r{b} ? 1.0f : 0.0f"),
        // Signed integers that overflow are undefined in C.
        Binary::AddIntegers => format!("(int)((unsigned)r{a} + (unsigned)r{b})"),
        Binary::SubtractIntegers => format!("(int)((unsigned)r{a} - (unsigned)r{b})"),
        Binary::MultiplyIntegers => format!("(int)((unsigned)r{a} * (unsigned)r{b})"),
        Binary::FloorDivideIntegers => format!("soybean_floor_divide(r{a}, r{b})"),
        Binary::RemainderOfIntegers => format!("soybean_remainder(r{a}, r{b})"),
        Binary::Noise => format!("soybean_noise(r{a}, r{b})"),
    }
}
