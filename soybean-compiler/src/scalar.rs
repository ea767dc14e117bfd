//! Scalar programs: building, differentiating and composing them.

mod derivative;
mod guard;
mod known;
mod linearity;
mod padding;
mod properties;
mod unchanged;

use std::{borrow::Cow, collections::BTreeMap};

use soybean_plan::{Binary, Instruction, Register, RunScalar, ScalarProgram, Unary};

pub use derivative::derivative;
pub(crate) use guard::{guarded, zero_where_zero};
pub(crate) use known::{Known, Sign, known_result};
pub(crate) use linearity::{is_linear_in_first, linear_inputs};
pub(crate) use padding::{masked, result_in_padding};
use properties::sources;
pub(crate) use properties::{has_right_kinds, is_of_noise, n_reads, reads_scalars};
pub use properties::{inputs, is_cheap, is_cheap_exponential, n_flops};
pub(crate) use unchanged::keeps_input;

/// Builds a [`ScalarProgram`]. Equal instructions share a register, and constants are folded.
#[derive(Default)]
pub struct ScalarBuilder {
    instructions: Vec<Instruction>,
    registers: BTreeMap<Key, Register>,
}

/// An instruction as a value with an order. Constants are compared by their bits.
type Key = (u8, u64, Register, Register);

fn key(instruction: Instruction) -> Key {
    match instruction {
        Instruction::Input(input) => (0, input.into(), 0, 0),
        Instruction::Scalar(scalar) => (1, scalar.into(), 0, 0),
        Instruction::Constant(value) => (2, value.to_bits(), 0, 0),
        Instruction::Unary(function, x) => (3, function as u64, x, 0),
        Instruction::Binary(function, x, y) => (4, function as u64, x, y),
        Instruction::Select(condition, x, y) => (5, condition.into(), x, y),
        Instruction::Integer(input) => (6, input.into(), 0, 0),
        Instruction::IntegerConstant(value) => (7, value.cast_unsigned().into(), 0, 0),
    }
}

impl ScalarBuilder {
    fn push(&mut self, instruction: Instruction) -> Register {
        let next = self.instructions.len();
        *self.registers.entry(key(instruction)).or_insert_with(|| {
            self.instructions.push(instruction);
            Register::try_from(next).expect("scalar programs are short")
        })
    }

    /// Adds the element of an input of numbers.
    pub fn input(&mut self, input: u8) -> Register {
        self.push(Instruction::Input(input))
    }

    /// Adds the element of an input of integers.
    pub fn integer(&mut self, input: u8) -> Register {
        self.push(Instruction::Integer(input))
    }

    /// Adds the element of an input of integers as a number.
    pub fn float(&mut self, input: u8) -> Register {
        let integer = self.integer(input);
        self.unary(Unary::Float, integer)
    }

    /// Adds an integer.
    pub fn integer_constant(&mut self, value: i32) -> Register {
        self.push(Instruction::IntegerConstant(value))
    }

    /// Adds a run-time scalar.
    pub fn scalar(&mut self, scalar: u8) -> Register {
        self.push(Instruction::Scalar(scalar))
    }

    /// Adds a constant.
    pub fn constant(&mut self, value: f64) -> Register {
        self.push(Instruction::Constant(value))
    }

    fn as_constant(&self, register: Register) -> Option<f64> {
        match self.instructions[register as usize] {
            Instruction::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the dividend and the divisor of a quotient times a power of 2, which has one
    /// rounding less than the product.
    fn as_quotient(&self, quotient: Register, factor: f64) -> Option<(Register, f64)> {
        let Instruction::Binary(Binary::Divide, dividend, divisor) =
            self.instructions[quotient as usize]
        else {
            return None;
        };
        let is_power = factor.is_normal() && factor.to_bits().trailing_zeros() >= 52;
        let divisor = self.as_constant(divisor)? / factor;
        let is_usual = (1e-30..1e30).contains(&divisor.abs());
        (is_power && is_usual).then_some((dividend, divisor))
    }

    /// Adds a function of one register.
    pub fn unary(&mut self, function: Unary, x: Register) -> Register {
        match (function, self.as_constant(x)) {
            (Unary::Negate, Some(value)) => self.constant(-value),
            (Unary::Detach, _) => x,
            _ => self.push(Instruction::Unary(function, x)),
        }
    }

    /// Returns `x` as a value through which no gradient flows.
    pub fn detach(&mut self, x: Register) -> Register {
        self.push(Instruction::Unary(Unary::Detach, x))
    }

    /// Adds a function of two registers.
    pub fn binary(&mut self, function: Binary, x: Register, y: Register) -> Register {
        if let (Binary::Multiply, Some(factor)) = (function, self.as_constant(y))
            && let Some((dividend, divisor)) = self.as_quotient(x, factor)
        {
            let divisor = self.constant(divisor);
            return self.div(dividend, divisor);
        }
        match (function, self.as_constant(x), self.as_constant(y)) {
            (Binary::Add, Some(a), Some(b)) => self.constant(a + b),
            (Binary::Subtract, Some(a), Some(b)) => self.constant(a - b),
            (Binary::Multiply, Some(a), Some(b)) => self.constant(a * b),
            (Binary::Divide, Some(a), Some(b)) => self.constant(a / b),
            (Binary::Equal, Some(a), Some(b)) => self.constant(f64::from(a == b)),
            (Binary::Add, Some(0.0), _) | (Binary::Multiply, Some(1.0), _) => y,
            (Binary::Add | Binary::Subtract, _, Some(0.0))
            | (Binary::Multiply | Binary::Divide | Binary::Power, _, Some(1.0)) => x,
            (Binary::Subtract, Some(0.0), _) => self.unary(Unary::Negate, y),
            _ => self.push(Instruction::Binary(function, x, y)),
        }
    }

    /// Returns `x + y`.
    pub fn add(&mut self, x: Register, y: Register) -> Register {
        self.binary(Binary::Add, x, y)
    }

    /// Returns `x - y`.
    pub fn sub(&mut self, x: Register, y: Register) -> Register {
        self.binary(Binary::Subtract, x, y)
    }

    /// Returns `x * y`.
    pub fn mul(&mut self, x: Register, y: Register) -> Register {
        self.binary(Binary::Multiply, x, y)
    }

    /// Returns `x / y`.
    pub fn div(&mut self, x: Register, y: Register) -> Register {
        self.binary(Binary::Divide, x, y)
    }

    /// Returns 1 where `x == y`, else 0; both are numbers, or both are integers.
    pub fn equal(&mut self, x: Register, y: Register) -> Register {
        let function = if self.is_integer(x) { Binary::EqualIntegers } else { Binary::Equal };
        self.binary(function, x, y)
    }

    /// Returns 1 where `x > y`, else 0; both are numbers, or both are integers.
    pub fn greater(&mut self, x: Register, y: Register) -> Register {
        let function = if self.is_integer(x) { Binary::GreaterInteger } else { Binary::Greater };
        self.binary(function, x, y)
    }

    /// Returns 1 where `x >= y`, else 0, also where one is NaN; both are numbers, or integers.
    pub fn greater_or_equal(&mut self, x: Register, y: Register) -> Register {
        if !self.is_integer(x) {
            return self.binary(Binary::GreaterOrEqual, x, y);
        }
        let (is_greater, is_equal) = (self.greater(x, y), self.equal(x, y));
        self.add(is_greater, is_equal)
    }

    /// Returns whether a register holds an integer.
    pub fn is_integer(&self, register: Register) -> bool {
        match self.instructions[register as usize] {
            Instruction::Integer(_) | Instruction::IntegerConstant(_) => true,
            Instruction::Input(_)
            | Instruction::Scalar(_)
            | Instruction::Constant(_)
            | Instruction::Unary(..) => false,
            Instruction::Binary(function, ..) => function.gives_integers(),
            Instruction::Select(_, x, _) => self.is_integer(x),
        }
    }

    /// Returns 1 where `x > 0`, else 0.
    pub fn is_positive(&mut self, x: Register) -> Register {
        let zero = self.constant(0.0);
        self.binary(Binary::Greater, x, zero)
    }

    /// Returns `x` where the condition is not 0, else `y`.
    pub fn select(&mut self, condition: Register, x: Register, y: Register) -> Register {
        match self.as_constant(condition) {
            _ if x == y => x,
            Some(0.0) => y,
            Some(_) => x,
            None => self.push(Instruction::Select(condition, x, y)),
        }
    }

    /// Returns `x` times a constant.
    pub fn scale(&mut self, x: Register, factor: f64) -> Register {
        let factor = self.constant(factor);
        self.mul(x, factor)
    }

    /// Returns `x` plus a constant.
    pub fn offset(&mut self, x: Register, term: f64) -> Register {
        let term = self.constant(term);
        self.add(x, term)
    }

    /// Appends a program whose inputs are the given registers; returns the registers of its
    /// results.
    pub(crate) fn append(&mut self, program: &ScalarProgram, inputs: &[Register]) -> Vec<Register> {
        let registers = self.append_all(program, inputs);
        program.results.iter().map(|&it| registers[it as usize]).collect()
    }

    /// Appends a program in the same way; returns the register of each of its instructions.
    fn append_all(&mut self, program: &ScalarProgram, inputs: &[Register]) -> Vec<Register> {
        let mut registers: Vec<Register> = Vec::with_capacity(program.instructions.len());
        for instruction in program.instructions.iter() {
            let of = |it: Register| registers[it as usize];
            let register = match *instruction {
                Instruction::Input(input) => inputs[input as usize],
                Instruction::Integer(input) => self.integer_of(inputs[input as usize]),
                Instruction::Unary(Unary::Detach, x) => self.detach(of(x)),
                Instruction::Unary(function, x) => self.unary(function, of(x)),
                Instruction::Binary(function, x, y) => self.binary(function, of(x), of(y)),
                Instruction::Select(condition, x, y) => self.select(of(condition), of(x), of(y)),
                Instruction::Scalar(_)
                | Instruction::Constant(_)
                | Instruction::IntegerConstant(_) => self.push(*instruction),
            };
            registers.push(register);
        }
        registers
    }

    /// Returns the integer in a register, or adds that of an input that was added as a number.
    fn integer_of(&mut self, register: Register) -> Register {
        match self.instructions[register as usize] {
            Instruction::Input(input) => self.integer(input),
            _ => register,
        }
    }

    /// Finishes the program with this result, without instructions that it does not need.
    #[must_use]
    pub fn finish(self, result: Register) -> ScalarProgram {
        self.finish_all(&[result])
    }

    /// Finishes the program with these results, without instructions that they do not need.
    ///
    /// # Panics
    /// If there are more than 65,536 instructions.
    #[must_use]
    pub fn finish_all(self, results: &[Register]) -> ScalarProgram {
        let mut is_needed = vec![false; self.instructions.len()];
        results.iter().for_each(|&it| is_needed[it as usize] = true);
        for at in (0..self.instructions.len()).rev() {
            if is_needed[at] {
                for source in sources(&self.instructions[at]) {
                    is_needed[source as usize] = true;
                }
            }
        }
        let mut renumbered = vec![0; self.instructions.len()];
        let mut kept = Vec::new();
        for (at, instruction) in self.instructions.into_iter().enumerate() {
            if is_needed[at] {
                renumbered[at] = Register::try_from(kept.len()).expect("scalar programs are short");
                kept.push(with_sources(instruction, |it| renumbered[it as usize]));
            }
        }
        let results = results.iter().map(|&it| renumbered[it as usize]).collect();
        ScalarProgram { instructions: Cow::Owned(kept), results: Cow::Owned(results) }
    }
}

/// Returns the instruction with other registers to read.
fn with_sources(instruction: Instruction, of: impl Fn(Register) -> Register) -> Instruction {
    match instruction {
        Instruction::Input(_)
        | Instruction::Integer(_)
        | Instruction::Scalar(_)
        | Instruction::Constant(_)
        | Instruction::IntegerConstant(_) => instruction,
        Instruction::Unary(function, x) => Instruction::Unary(function, of(x)),
        Instruction::Binary(function, x, y) => Instruction::Binary(function, of(x), of(y)),
        Instruction::Select(condition, x, y) => Instruction::Select(of(condition), of(x), of(y)),
    }
}

/// Returns the number of a run-time scalar in a list, to which it is added if it is new.
pub(crate) fn number(scalars: &mut Vec<RunScalar>, scalar: RunScalar) -> u8 {
    let position = scalars.iter().position(|it| *it == scalar).unwrap_or_else(|| {
        scalars.push(scalar);
        scalars.len() - 1
    });
    u8::try_from(position).expect("there are few kinds of scalars")
}

/// Returns the program whose result is its only input, an integer, as a number.
#[must_use]
pub(crate) fn float() -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let number = builder.float(0);
    builder.finish(number)
}

/// Returns the program whose result is its only input, an integer.
#[must_use]
pub(crate) fn integer() -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let integer = builder.integer(0);
    builder.finish(integer)
}

/// Returns the program whose result is its only input.
#[must_use]
pub fn identity() -> ScalarProgram {
    ScalarProgram::identity()
}

/// Returns the program whose result is its only input times a constant.
#[must_use]
pub fn multiple(factor: f64) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let x = builder.input(0);
    let result = builder.scale(x, factor);
    builder.finish(result)
}

/// Returns the program of one function of one input.
#[must_use]
pub fn unary(function: Unary) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let x = builder.input(0);
    let result =
        if function == Unary::Detach { builder.detach(x) } else { builder.unary(function, x) };
    builder.finish(result)
}

/// Returns the program of one function of two inputs.
#[must_use]
pub fn binary(function: Binary) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let [x, y] = [0, 1].map(|it| match function.takes_integers() {
        true => builder.integer(it),
        false => builder.input(it),
    });
    let result = builder.binary(function, x, y);
    builder.finish(result)
}

/// Returns the inputs that a program reads, in increasing order, and the program over these alone.
pub(crate) fn compact(program: &ScalarProgram) -> (Vec<u8>, ScalarProgram) {
    let read = inputs(program);
    let n_inputs = read.last().map_or(0, |it| it + 1);
    let place = |input: u8| read.iter().filter(|it| **it < input).fold(0, |n, _| n + 1);
    let of: Vec<u8> = (0..n_inputs).map(place).collect();
    let program = renumber(program, &of);
    (read, program)
}

/// Returns `outer` with its inputs replaced: input `at` becomes the result of `inner`, and input
/// `i` becomes input `others[i]`. The inputs of `inner` become `of_inner`.
#[must_use]
pub fn compose(
    outer: &ScalarProgram,
    at: u8,
    others: &[u8],
    inner: &ScalarProgram,
    of_inner: &[u8],
) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let inner_inputs: Vec<Register> = of_inner.iter().map(|&it| builder.input(it)).collect();
    let result = builder.append(inner, &inner_inputs)[0];
    let outer_inputs: Vec<Register> = (0..others.len())
        .map(|input| if input == at as usize { result } else { builder.input(others[input]) })
        .collect();
    let results = builder.append(outer, &outer_inputs);
    builder.finish_all(&results)
}

/// Returns the program with its inputs renumbered.
#[must_use]
pub fn renumber(program: &ScalarProgram, of: &[u8]) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let inputs: Vec<Register> = of.iter().map(|&it| builder.input(it)).collect();
    let results = builder.append(program, &inputs);
    builder.finish_all(&results)
}

/// Returns the program without what only differentiation reads: marks, and terms of `x - x`, one of
/// which is detached. Such a term is 0 and has the gradient of `x`.
#[must_use]
pub fn without_detach(program: &ScalarProgram) -> ScalarProgram {
    let instructions = &program.instructions;
    let is_detached =
        |it: Register, of| instructions[it as usize] == Instruction::Unary(Unary::Detach, of);
    let mut builder = ScalarBuilder::default();
    let mut registers: Vec<Register> = Vec::new();
    let mut is_zero: Vec<bool> = Vec::new();
    for instruction in instructions.iter() {
        let of = |it: Register| registers[it as usize];
        let zero = |it: Register| is_zero[it as usize];
        let vanishes = match *instruction {
            Instruction::Binary(Binary::Subtract, x, y) if is_detached(y, x) => true,
            Instruction::Binary(Binary::Multiply, x, y) => zero(x) || zero(y),
            _ => false,
        };
        let register = match *instruction {
            _ if vanishes => builder.constant(0.0),
            Instruction::Unary(Unary::Detach, x) => of(x),
            Instruction::Binary(Binary::Add | Binary::Subtract, x, y) if zero(y) => of(x),
            Instruction::Binary(Binary::Add, x, y) if zero(x) => of(y),
            other => builder.push(with_sources(other, of)),
        };
        registers.push(register);
        is_zero.push(vanishes);
    }
    let results: Vec<Register> = program.results.iter().map(|&it| registers[it as usize]).collect();
    builder.finish_all(&results)
}

/// Returns the program that gives a number.
#[must_use]
pub fn constant(number: f64) -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let number = it.constant(number);
    it.finish(number)
}

/// Joins programs over the same inputs into one with all their results.
///
/// # Panics
/// If there are more than 256 inputs.
#[must_use]
pub fn join(programs: &[ScalarProgram], n_inputs: usize) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let inputs: Vec<Register> = (0..n_inputs)
        .map(|it| builder.input(u8::try_from(it).expect("maps have few inputs")))
        .collect();
    let results: Vec<Register> =
        programs.iter().flat_map(|it| builder.append(it, &inputs)).collect();
    builder.finish_all(&results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotient_times_a_power_of_2_is_a_quotient() {
        let times = |factor: f64, divisor: f64| {
            let mut it = ScalarBuilder::default();
            let (x, divisor) = (it.input(0), it.constant(divisor));
            let quotient = it.div(x, divisor);
            let product = it.scale(quotient, factor);
            it.finish(product).to_string()
        };
        assert_eq!(times(0.125, 0.75), "div(x0, 6)");
        assert_eq!(times(-0.5, 3.0), "div(x0, -6)");
        // Another factor would round the divisor, and this one would make it infinite in f32.
        assert_eq!(times(0.375, 3.0), "mul(div(x0, 3), 0.375)");
        assert_eq!(
            times(2.0_f64.powi(-126), 49.0),
            format!("mul(div(x0, 49), {})", 2.0_f64.powi(-126))
        );
    }

    #[test]
    fn composing_folds_constants_and_shares_equal_instructions() {
        let outer = binary(Binary::Add);
        let composed = compose(&outer, 0, &[0, 1], &unary(Unary::Exp), &[1]);
        assert_eq!(composed.to_string(), "add(exp(x1), x1)");
        assert_eq!(composed.instructions.len(), 3);
    }

    #[test]
    fn terms_that_are_zero_but_have_a_gradient_go_with_the_marks() {
        let mut it = ScalarBuilder::default();
        let (x, scale, bias) = (it.input(0), it.input(1), it.input(2));
        let constant = it.detach(x);
        let zero = it.sub(x, constant);
        let product = it.mul(zero, scale);
        let sum = it.sub(bias, product);
        let kept = it.sub(sum, constant);
        let program = it.finish(kept);
        assert_eq!(without_detach(&program).to_string(), "sub(x2, x0)");
        let mut it = ScalarBuilder::default();
        let x = it.input(0);
        let constant = it.detach(x);
        let zero = it.sub(x, constant);
        assert_eq!(without_detach(&it.finish(zero)).to_string(), "0");
    }
}
