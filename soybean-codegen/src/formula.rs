//! Scalar programs as CUDA C.

use std::collections::BTreeSet;

use soybean_plan::{Binary, Instruction, Precision, ScalarProgram, Unary};

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

/// An element of an input, for the points that a thread computes.
pub(crate) struct Element {
    /// The expression for it.
    pub(crate) text: String,
    /// True if the points may have different ones.
    pub(crate) varies: bool,
}

/// Writes a constant `r0` for each register and returns the results.
pub(crate) fn write(
    text: &mut Text,
    program: &ScalarProgram,
    precision: Precision,
    input: impl Fn(usize) -> Element,
) -> Vec<String> {
    let integers = program.integers();
    let mut varying: Vec<bool> = Vec::with_capacity(program.instructions.len());
    for (register, instruction) in program.instructions.iter().enumerate() {
        let c_type = if integers[register] { "int" } else { "float" };
        let varies = |it: u16| varying[usize::from(it)];
        let (value, is_varying) = match *instruction {
            Instruction::Input(number) | Instruction::Integer(number) => {
                let element = input(usize::from(number));
                (element.text, element.varies)
            }
            Instruction::Scalar(number) => (format!("s{number}"), false),
            Instruction::Constant(value) => (constant(value), false),
            // The least integer has no literal.
            Instruction::IntegerConstant(i32::MIN) => ("-2147483647 - 1".to_owned(), false),
            Instruction::IntegerConstant(value) => (value.to_string(), false),
            Instruction::Unary(function, a) => (unary(function, a, precision), varies(a)),
            Instruction::Binary(function, a, b) => {
                let special = match function {
                    Binary::Add => tail(program, precision, a, b),
                    Binary::Divide if varies(a) && !varies(b) => quotient(program, precision, a, b),
                    Binary::Greater if !varies(a) => bounded_noise(program, a, b),
                    _ => None,
                };
                (special.unwrap_or_else(|| binary(function, a, b)), varies(a) || varies(b))
            }
            Instruction::Select(a, b, c) => {
                (format!("r{a} == 0.0f ? r{c} : r{b}"), varies(a) || varies(b) || varies(c))
            }
        };
        text.line(format!("const {c_type} r{register} = {value};"));
        varying.push(is_varying);
    }
    program.results.iter().map(|it| format!("r{it}")).collect()
}

/// Returns the sum of 1 and an error function if low precision suffices: `1 + erf(x) = erfc(-x)`.
fn tail(program: &ScalarProgram, precision: Precision, a: u16, b: u16) -> Option<String> {
    let at = |register: u16| program.instructions[usize::from(register)];
    match (at(a), at(b)) {
        (Instruction::Unary(Unary::Erf, x), Instruction::Constant(1.0))
        | (Instruction::Constant(1.0), Instruction::Unary(Unary::Erf, x)) => {
            (precision == Precision::Bf16).then(|| format!("soybean_fast_erfc(-r{x})"))
        }
        _ => None,
    }
}

/// Returns a quotient of points that share a divisor, if its reciprocal is not exact.
fn quotient(program: &ScalarProgram, precision: Precision, a: u16, b: u16) -> Option<String> {
    #[expect(clippy::cast_possible_truncation, reason = "constants are of single precision")]
    let is_power_of_two = matches!(
        program.instructions[usize::from(b)],
        Instruction::Constant(value) if (value as f32).to_bits() << 9 == 0
    );
    let function = match precision {
        Precision::F32 | Precision::Tf32 => "soybean_divide_by",
        Precision::Bf16 => "soybean_fast_divide_by",
    };
    (!is_power_of_two).then(|| format!("{function}(r{a}, r{b})"))
}

/// Returns the comparison with noise, of a bound that points share.
fn bounded_noise(program: &ScalarProgram, a: u16, b: u16) -> Option<String> {
    match program.instructions[usize::from(b)] {
        Instruction::Binary(Binary::Noise, x, y) => {
            Some(format!("soybean_exceeds_noise(r{a}, r{x}, r{y}) ? 1.0f : 0.0f"))
        }
        _ => None,
    }
}

/// Returns the exponential function for a precision.
pub(crate) const fn exp(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 | Precision::Tf32 => "expf",
        Precision::Bf16 => "soybean_fast_exp",
    }
}

fn unary(function: Unary, a: u16, precision: Precision) -> String {
    let name = match function {
        Unary::Negate => "-",
        Unary::Relu => "soybean_relu",
        Unary::Exp => exp(precision),
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
        Binary::FloorDivide | Binary::FloorDivideIntegers => {
            format!("soybean_floor_divide(r{a}, r{b})")
        }
        Binary::Remainder | Binary::RemainderOfIntegers => format!("soybean_remainder(r{a}, r{b})"),
        Binary::Maximum => format!("soybean_maximum(r{a}, r{b})"),
        Binary::Power => format!("powf(r{a}, r{b})"),
        Binary::Equal | Binary::EqualIntegers => format!("r{a} == r{b} ? 1.0f : 0.0f"),
        Binary::Greater | Binary::GreaterInteger => format!("r{a} > r{b} ? 1.0f : 0.0f"),
        Binary::GreaterOrEqual => format!("r{a} >= r{b} ? 1.0f : 0.0f"),
        // Signed integers that overflow are undefined in C.
        Binary::AddIntegers => format!("(int)((unsigned)r{a} + (unsigned)r{b})"),
        Binary::SubtractIntegers => format!("(int)((unsigned)r{a} - (unsigned)r{b})"),
        Binary::MultiplyIntegers => format!("(int)((unsigned)r{a} * (unsigned)r{b})"),
        Binary::Noise => format!("soybean_noise(r{a}, r{b})"),
    }
}
