//! Scalar programs: building, differentiating and composing them.

use std::{borrow::Cow, fmt};

use soybean_plan::{Binary, Instruction, Register, ScalarProgram, Unary};

/// Writes a [`ScalarProgram`], one instruction a call; equal instructions share a register, and constants are folded.
#[derive(Default)]
pub struct ScalarBuilder {
    instructions: Vec<Instruction>,
}

impl ScalarBuilder {
    fn push(&mut self, instruction: Instruction) -> Register {
        let position = self.instructions.iter().position(|it| *it == instruction).unwrap_or_else(|| {
            self.instructions.push(instruction);
            self.instructions.len() - 1
        });
        Register::try_from(position).expect("scalar programs are short")
    }

    /// The element of an input.
    pub fn input(&mut self, input: u8) -> Register {
        self.push(Instruction::Input(input))
    }

    /// A run-time scalar.
    pub fn scalar(&mut self, scalar: u8) -> Register {
        self.push(Instruction::Scalar(scalar))
    }

    /// A constant.
    pub fn constant(&mut self, value: f64) -> Register {
        self.push(Instruction::Constant(value))
    }

    fn as_constant(&self, register: Register) -> Option<f64> {
        match self.instructions[register as usize] {
            Instruction::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// A function of one register.
    pub fn unary(&mut self, function: Unary, x: Register) -> Register {
        match (function, self.as_constant(x)) {
            (Unary::Negate, Some(value)) => self.constant(-value),
            (Unary::Detach, _) => x,
            _ => self.push(Instruction::Unary(function, x)),
        }
    }

    /// `x` as a value through which no gradient flows.
    pub fn detach(&mut self, x: Register) -> Register {
        self.push(Instruction::Unary(Unary::Detach, x))
    }

    /// A function of two registers.
    pub fn binary(&mut self, function: Binary, x: Register, y: Register) -> Register {
        match (function, self.as_constant(x), self.as_constant(y)) {
            (Binary::Add, Some(a), Some(b)) => self.constant(a + b),
            (Binary::Subtract, Some(a), Some(b)) => self.constant(a - b),
            (Binary::Multiply, Some(a), Some(b)) => self.constant(a * b),
            (Binary::Divide, Some(a), Some(b)) => self.constant(a / b),
            (Binary::Add, Some(0.0), _) | (Binary::Multiply, Some(1.0), _) => y,
            (Binary::Add | Binary::Subtract, _, Some(0.0)) | (Binary::Multiply | Binary::Divide, _, Some(1.0)) => x,
            (Binary::Subtract, Some(0.0), _) => self.unary(Unary::Negate, y),
            _ => self.push(Instruction::Binary(function, x, y)),
        }
    }

    /// `x + y`
    pub fn add(&mut self, x: Register, y: Register) -> Register {
        self.binary(Binary::Add, x, y)
    }

    /// `x - y`
    pub fn sub(&mut self, x: Register, y: Register) -> Register {
        self.binary(Binary::Subtract, x, y)
    }

    /// `x * y`
    pub fn mul(&mut self, x: Register, y: Register) -> Register {
        self.binary(Binary::Multiply, x, y)
    }

    /// `x / y`
    pub fn div(&mut self, x: Register, y: Register) -> Register {
        self.binary(Binary::Divide, x, y)
    }

    /// 1 where `x == y`, else 0.
    pub fn equal(&mut self, x: Register, y: Register) -> Register {
        self.binary(Binary::Equal, x, y)
    }

    /// 1 where `x > 0`, else 0.
    pub fn is_positive(&mut self, x: Register) -> Register {
        let zero = self.constant(0.0);
        self.binary(Binary::Greater, x, zero)
    }

    /// `x` where the condition is not 0, else `y`.
    pub fn select(&mut self, condition: Register, x: Register, y: Register) -> Register {
        if x == y { x } else { self.push(Instruction::Select(condition, x, y)) }
    }

    /// `x` times a constant.
    pub fn scale(&mut self, x: Register, factor: f64) -> Register {
        let factor = self.constant(factor);
        self.mul(x, factor)
    }

    /// `x` plus a constant.
    pub fn offset(&mut self, x: Register, term: f64) -> Register {
        let term = self.constant(term);
        self.add(x, term)
    }

    /// Appends a program whose inputs are the given registers; the registers of its results.
    fn append(&mut self, program: &ScalarProgram, inputs: &[Register]) -> Vec<Register> {
        let registers = self.append_all(program, inputs);
        program.results.iter().map(|&it| registers[it as usize]).collect()
    }

    /// The same, giving the register of every instruction of the program.
    fn append_all(&mut self, program: &ScalarProgram, inputs: &[Register]) -> Vec<Register> {
        let mut registers: Vec<Register> = Vec::with_capacity(program.instructions.len());
        for instruction in program.instructions.iter() {
            let of = |it: Register| registers[it as usize];
            let register = match *instruction {
                Instruction::Input(input) => inputs[input as usize],
                Instruction::Unary(Unary::Detach, x) => self.detach(of(x)),
                Instruction::Unary(function, x) => self.unary(function, of(x)),
                Instruction::Binary(function, x, y) => self.binary(function, of(x), of(y)),
                Instruction::Select(condition, x, y) => self.select(of(condition), of(x), of(y)),
                Instruction::Scalar(_) | Instruction::Constant(_) => self.push(*instruction),
            };
            registers.push(register);
        }
        registers
    }

    /// The program with this result, without instructions that it does not need.
    #[must_use]
    pub fn finish(self, result: Register) -> ScalarProgram {
        self.finish_all(&[result])
    }

    /// The program with these results, without instructions that they do not need.
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

/// The registers that an instruction reads.
fn sources(instruction: &Instruction) -> Vec<Register> {
    match *instruction {
        Instruction::Input(_) | Instruction::Scalar(_) | Instruction::Constant(_) => Vec::new(),
        Instruction::Unary(_, x) => vec![x],
        Instruction::Binary(_, x, y) => vec![x, y],
        Instruction::Select(condition, x, y) => vec![condition, x, y],
    }
}

/// The instruction with other registers to read.
fn with_sources(instruction: Instruction, of: impl Fn(Register) -> Register) -> Instruction {
    match instruction {
        Instruction::Input(_) | Instruction::Scalar(_) | Instruction::Constant(_) => instruction,
        Instruction::Unary(function, x) => Instruction::Unary(function, of(x)),
        Instruction::Binary(function, x, y) => Instruction::Binary(function, of(x), of(y)),
        Instruction::Select(condition, x, y) => Instruction::Select(of(condition), of(x), of(y)),
    }
}

/// The program that gives its only input.
#[must_use]
pub fn identity() -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let input = builder.input(0);
    builder.finish(input)
}

/// The program of one function of one input.
#[must_use]
pub fn unary(function: Unary) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let x = builder.input(0);
    let result = if function == Unary::Detach { builder.detach(x) } else { builder.unary(function, x) };
    builder.finish(result)
}

/// The program of one function of two inputs.
#[must_use]
pub fn binary(function: Binary) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let (x, y) = (builder.input(0), builder.input(1));
    let result = builder.binary(function, x, y);
    builder.finish(result)
}

/// Whether a program has no instruction that costs more than a few cycles, so that computing it again is cheaper than storing it.
#[must_use]
pub fn is_cheap(program: &ScalarProgram) -> bool {
    n_flops(program) <= 4
}

/// Floating-point operations of a program; a transcendental function counts as many as its polynomial has terms.
#[must_use]
pub fn n_flops(program: &ScalarProgram) -> u64 {
    let flops = |instruction: &Instruction| match instruction {
        Instruction::Input(_) | Instruction::Scalar(_) | Instruction::Constant(_) => 0,
        Instruction::Unary(function, _) => match function {
            Unary::Negate | Unary::Relu => 1,
            Unary::Detach => 0,
            Unary::Sqrt => 4,
            Unary::Exp | Unary::Log | Unary::Tanh | Unary::Sigmoid | Unary::Erf => 10,
        },
        Instruction::Binary(Binary::Divide, ..) => 4,
        Instruction::Binary(..) | Instruction::Select(..) => 1,
    };
    program.instructions.iter().map(flops).sum()
}

/// The inputs that a program reads, in increasing order.
#[must_use]
pub fn inputs(program: &ScalarProgram) -> Vec<u8> {
    let input = |instruction: &Instruction| match instruction {
        Instruction::Input(input) => Some(*input),
        _ => None,
    };
    let mut inputs: Vec<u8> = program.instructions.iter().filter_map(input).collect();
    inputs.sort_unstable();
    inputs
}

/// The program in which inputs are replaced: input `i` of `outer` becomes the result of `inner` if `i` is `at`, else input `others[i]`;
/// the inputs of `inner` become `of_inner`.
#[must_use]
pub fn compose(outer: &ScalarProgram, at: u8, others: &[u8], inner: &ScalarProgram, of_inner: &[u8]) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let inner_inputs: Vec<Register> = of_inner.iter().map(|&it| builder.input(it)).collect();
    let result = builder.append(inner, &inner_inputs)[0];
    let outer_inputs: Vec<Register> = (0..others.len())
        .map(|input| if input == at as usize { result } else { builder.input(others[input]) })
        .collect();
    let results = builder.append(outer, &outer_inputs);
    builder.finish_all(&results)
}

/// The program with its inputs renumbered.
#[must_use]
pub fn renumber(program: &ScalarProgram, of: &[u8]) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let inputs: Vec<Register> = of.iter().map(|&it| builder.input(it)).collect();
    let results = builder.append(program, &inputs);
    builder.finish_all(&results)
}

/// The program without marks that only differentiation reads.
#[must_use]
pub fn without_detach(program: &ScalarProgram) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let mut registers: Vec<Register> = Vec::new();
    for instruction in program.instructions.iter() {
        let register = match *instruction {
            Instruction::Unary(Unary::Detach, x) => registers[x as usize],
            other => builder.push(with_sources(other, |it| registers[it as usize])),
        };
        registers.push(register);
    }
    let results: Vec<Register> = program.results.iter().map(|&it| registers[it as usize]).collect();
    builder.finish_all(&results)
}

/// Several programs over the same inputs as one with all their results.
#[must_use]
pub fn join(programs: &[ScalarProgram], n_inputs: usize) -> ScalarProgram {
    let mut builder = ScalarBuilder::default();
    let inputs: Vec<Register> =
        (0..n_inputs).map(|it| builder.input(u8::try_from(it).expect("maps have few inputs"))).collect();
    let results: Vec<Register> = programs.iter().flat_map(|it| builder.append(it, &inputs)).collect();
    builder.finish_all(&results)
}

/// The gradient of a program of `n` inputs by one of them; none if it does not depend on it. The inputs of the gradient are the program's, then
/// its result, then the gradient by its result. Rules use the result where they can, so that its operands need not be kept.
#[must_use]
pub fn derivative(program: &ScalarProgram, input: u8, n: usize) -> Option<ScalarProgram> {
    let mut builder = ScalarBuilder::default();
    let inputs: Vec<Register> =
        (0..n + 2).map(|it| builder.input(u8::try_from(it).expect("maps have few inputs"))).collect();
    let mut registers = builder.append_all(program, &inputs);
    registers[program.results[0] as usize] = inputs[n];
    let mut adjoints: Vec<Option<Register>> = vec![None; program.instructions.len()];
    adjoints[program.results[0] as usize] = Some(inputs[n + 1]);
    let mut total = None;
    for (at, instruction) in program.instructions.iter().enumerate().rev() {
        let Some(gradient) = adjoints[at] else { continue };
        if *instruction == Instruction::Input(input) {
            total = Some(gradient);
        }
        for (source, term) in terms(&mut builder, instruction, &registers, registers[at], gradient) {
            let slot = &mut adjoints[source as usize];
            *slot = Some(slot.map_or(term, |sum| builder.add(sum, term)));
        }
    }
    total.map(|result| builder.finish(result))
}

/// The rules: for each register that an instruction reads, its share of the gradient `g`; `y` is the instruction's result.
fn terms(
    b: &mut ScalarBuilder,
    instruction: &Instruction,
    registers: &[Register],
    y: Register,
    g: Register,
) -> Vec<(Register, Register)> {
    let of = |it: Register| registers[it as usize];
    let zero = b.constant(0.0);
    match *instruction {
        Instruction::Input(_) | Instruction::Scalar(_) | Instruction::Constant(_) => Vec::new(),
        Instruction::Unary(function, x) => unary_term(b, function, of(x), y, g).map(|term| (x, term)).into_iter().collect(),
        Instruction::Binary(function, x, z) => {
            let [by_x, by_z] = binary_terms(b, function, of(x), of(z), y, g);
            [by_x.map(|term| (x, term)), by_z.map(|term| (z, term))].into_iter().flatten().collect()
        }
        Instruction::Select(condition, x, z) => {
            let (by_x, by_z) = (b.select(of(condition), g, zero), b.select(of(condition), zero, g));
            vec![(x, by_x), (z, by_z)]
        }
    }
}

fn unary_term(b: &mut ScalarBuilder, function: Unary, x: Register, y: Register, g: Register) -> Option<Register> {
    let (zero, one) = (b.constant(0.0), b.constant(1.0));
    Some(match function {
        Unary::Detach => return None,
        Unary::Negate => b.unary(Unary::Negate, g),
        // d relu(x) = g where relu(x) > 0
        Unary::Relu => {
            let is_positive = b.is_positive(y);
            b.select(is_positive, g, zero)
        }
        // d e^x = e^x g
        Unary::Exp => b.mul(g, y),
        // d log(x) = g / x
        Unary::Log => b.div(g, x),
        // d sqrt(x) = g / (2 sqrt(x))
        Unary::Sqrt => {
            let twice = b.add(y, y);
            b.div(g, twice)
        }
        // d tanh(x) = (1 - tanh(x)^2) g
        Unary::Tanh => {
            let square = b.mul(y, y);
            let slope = b.sub(one, square);
            b.mul(g, slope)
        }
        // d sigmoid(x) = s (1 - s) g
        Unary::Sigmoid => {
            let rest = b.sub(one, y);
            let slope = b.mul(y, rest);
            b.mul(g, slope)
        }
        // d erf(x) = 2 / sqrt(pi) e^(-x^2) g
        Unary::Erf => {
            let square = b.mul(x, x);
            let exponent = b.unary(Unary::Negate, square);
            let power = b.unary(Unary::Exp, exponent);
            let slope = b.scale(power, std::f64::consts::FRAC_2_SQRT_PI);
            b.mul(g, slope)
        }
    })
}

fn binary_terms(
    b: &mut ScalarBuilder,
    function: Binary,
    x: Register,
    z: Register,
    y: Register,
    g: Register,
) -> [Option<Register>; 2] {
    match function {
        Binary::Add => [Some(g), Some(g)],
        Binary::Subtract => [Some(g), Some(b.unary(Unary::Negate, g))],
        Binary::Multiply => [Some(b.mul(g, z)), Some(b.mul(g, x))],
        // d (x / z) = g / z by x, - y g / z by z
        Binary::Divide => {
            let by_x = b.div(g, z);
            let product = b.mul(by_x, y);
            [Some(by_x), Some(b.unary(Unary::Negate, product))]
        }
        // The larger one has the gradient; equal ones share it.
        Binary::Maximum => {
            let (zero, half) = (b.constant(0.0), b.scale(g, 0.5));
            let (is_equal, is_greater) = (b.equal(x, z), b.binary(Binary::Greater, x, z));
            let (by_x, by_z) = (b.select(is_greater, g, zero), b.select(is_greater, zero, g));
            [Some(b.select(is_equal, half, by_x)), Some(b.select(is_equal, half, by_z))]
        }
        Binary::Equal | Binary::Greater => [None, None],
    }
}

/// The text form of a program: its results as expressions over `x0`, `x1`, .. and `s0`, `s1`, .. for run-time scalars.
pub struct ScalarText<'a>(pub &'a ScalarProgram);

impl ScalarText<'_> {
    fn expression(&self, register: Register) -> String {
        match self.0.instructions[register as usize] {
            Instruction::Input(input) => format!("x{input}"),
            Instruction::Scalar(scalar) => format!("s{scalar}"),
            Instruction::Constant(value) => format!("{value}"),
            Instruction::Unary(function, x) => format!("{}({})", function.name(), self.expression(x)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(program: &ScalarProgram, expected: [&str; 2]) {
        for (input, expected) in [0, 1].into_iter().zip(expected) {
            let text = derivative(program, input, 2).map_or("none".to_owned(), |it| ScalarText(&it).to_string());
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn gradients_use_the_result_where_they_can() {
        check(&unary(Unary::Tanh), ["mul(x3, sub(1, mul(x2, x2)))", "none"]);
        check(&unary(Unary::Relu), ["select(gt(x2, 0), x3, 0)", "none"]);
        check(&unary(Unary::Detach), ["none", "none"]);
        check(&binary(Binary::Divide), ["div(x3, x1)", "neg(mul(div(x3, x1), x2))"]);
    }

    #[test]
    fn composing_folds_constants_and_shares_equal_instructions() {
        let outer = binary(Binary::Add);
        let composed = compose(&outer, 0, &[0, 1], &unary(Unary::Exp), &[1]);
        assert_eq!(ScalarText(&composed).to_string(), "add(exp(x1), x1)");
        assert_eq!(composed.instructions.len(), 3);
    }
}
