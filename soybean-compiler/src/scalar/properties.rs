//! Properties of scalar programs: costs, inputs, and the kinds of registers.

use soybean_plan::{Binary, DType, Instruction, Register, ScalarProgram, Unary};

/// The most operations of a program that is cheaper to compute than to read.
const MAX_CHEAP_FLOPS: u64 = 4;
/// The operations of a function that is computed as a polynomial.
const TRANSCENDENTAL_FLOPS: u64 = 10;

/// Returns whether no instruction of a program costs more than a few cycles, so that computing it
/// again is cheaper than storing it.
#[must_use]
pub fn is_cheap(program: &ScalarProgram) -> bool {
    n_flops(program) <= MAX_CHEAP_FLOPS
}

/// Returns whether a program is the exponential of what is cheap to compute.
#[must_use]
pub fn is_cheap_exponential(program: &ScalarProgram) -> bool {
    let is_exponential = |it: &Register| {
        matches!(program.instructions[*it as usize], Instruction::Unary(Unary::Exp, _))
    };
    program.results.iter().all(is_exponential)
        && n_flops(program) <= MAX_CHEAP_FLOPS + TRANSCENDENTAL_FLOPS
}

/// Returns the floating-point operations of a program. A transcendental function counts as many as
/// its polynomial has terms. Division by a constant is cheaper than other divisions: the dividend
/// is mostly a sum that has one element for each row of the result.
#[must_use]
pub fn n_flops(program: &ScalarProgram) -> u64 {
    let is_constant =
        |it: Register| matches!(program.instructions[it as usize], Instruction::Constant(_));
    let flops = |instruction: &Instruction| match instruction {
        Instruction::Input(_)
        | Instruction::Integer(_)
        | Instruction::Scalar(_)
        | Instruction::Constant(_)
        | Instruction::IntegerConstant(_) => 0,
        Instruction::Unary(function, _) => match function {
            Unary::Negate | Unary::Relu | Unary::Floor | Unary::Round => 1,
            Unary::Detach | Unary::Float => 0,
            Unary::Sqrt => 4,
            Unary::Exp | Unary::Log | Unary::Tanh | Unary::Sigmoid | Unary::Erf => {
                TRANSCENDENTAL_FLOPS
            }
            Unary::Expm1 | Unary::Log1p | Unary::Sin | Unary::Cos => TRANSCENDENTAL_FLOPS,
        },
        Instruction::Binary(Binary::Divide, _, divisor) if is_constant(*divisor) => 2,
        Instruction::Binary(Binary::Divide, ..) => 4,
        Instruction::Binary(Binary::FloorDivideIntegers | Binary::RemainderOfIntegers, ..) => 10,
        Instruction::Binary(Binary::Noise, ..) => 10,
        Instruction::Binary(Binary::Power | Binary::FloorDivide | Binary::Remainder, ..) => 20,
        Instruction::Binary(..) | Instruction::Select(..) => 1,
    };
    program.instructions.iter().map(flops).sum()
}

/// Returns the inputs that a program reads, in increasing order.
#[must_use]
pub fn inputs(program: &ScalarProgram) -> Vec<u8> {
    let input = |instruction: &Instruction| match instruction {
        Instruction::Input(input) | Instruction::Integer(input) => Some(*input),
        _ => None,
    };
    let mut inputs: Vec<u8> = program.instructions.iter().filter_map(input).collect();
    inputs.sort_unstable();
    inputs
}

/// Returns whether a program reads scalars of the step.
pub(crate) fn reads_scalars(program: &ScalarProgram) -> bool {
    program.instructions.iter().any(|it| matches!(it, Instruction::Scalar(_)))
}

/// Returns how often a program reads a register.
pub(crate) fn n_reads(program: &ScalarProgram, register: Register) -> usize {
    let read = program.instructions.iter().flat_map(sources).chain(program.results.iter().copied());
    read.filter(|it| *it == register).count()
}

/// Checks the kinds of registers: functions of integers and [`Unary::Float`] read integers, and
/// everything else reads numbers, but for selections, which choose between two of a kind. Inputs
/// are read as integers where `is_integer` has a mark for them, and only results of `i32` are
/// integers.
pub(crate) fn has_right_kinds(program: &ScalarProgram, is_integer: &[bool], dtype: DType) -> bool {
    let integers = program.integers();
    let of = |register: Register| integers[usize::from(register)];
    let is_right = |instruction: &Instruction| match *instruction {
        Instruction::Input(input) => !is_integer[input as usize],
        Instruction::Integer(input) => is_integer[input as usize],
        Instruction::Scalar(_) | Instruction::Constant(_) | Instruction::IntegerConstant(_) => true,
        Instruction::Unary(Unary::Float, x) => of(x),
        Instruction::Unary(_, x) => !of(x),
        Instruction::Binary(function, x, y) => {
            [x, y].into_iter().all(|it| of(it) == function.takes_integers())
        }
        Instruction::Select(condition, x, y) => !of(condition) && of(x) == of(y),
    };
    program.instructions.iter().all(is_right)
        && (dtype == DType::I32 || !program.results.iter().any(|it| of(*it)))
}

/// Returns whether noise alone reads an input of a program.
pub(crate) fn is_of_noise(program: &ScalarProgram, input: u8) -> bool {
    let of = |register: Register| program.instructions[usize::from(register)];
    let is_input = |register: Register| match of(register) {
        Instruction::Input(other) | Instruction::Integer(other) => other == input,
        Instruction::Unary(Unary::Float, x) => of(x) == Instruction::Integer(input),
        _ => false,
    };
    let may_read = |it: &Instruction| {
        matches!(it, Instruction::Binary(Binary::Noise, ..) | Instruction::Unary(Unary::Float, _))
    };
    let reads = |it: &Instruction| !may_read(it) && sources(it).into_iter().any(is_input);
    !program.instructions.iter().any(reads) && !program.results.iter().any(|it| is_input(*it))
}

/// Returns the registers that an instruction reads.
pub(super) fn sources(instruction: &Instruction) -> Vec<Register> {
    match *instruction {
        Instruction::Input(_)
        | Instruction::Integer(_)
        | Instruction::Scalar(_)
        | Instruction::Constant(_)
        | Instruction::IntegerConstant(_) => Vec::new(),
        Instruction::Unary(_, x) => vec![x],
        Instruction::Binary(_, x, y) => vec![x, y],
        Instruction::Select(condition, x, y) => vec![condition, x, y],
    }
}
