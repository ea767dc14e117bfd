//! Derivatives of scalar programs: one rule for each function.

use soybean_plan::{Binary, Instruction, Register, ScalarProgram, Unary};

use super::ScalarBuilder;

/// Returns the gradient of a program of `n` inputs with respect to one of them; `None` if the
/// program does not depend on it. The inputs of the gradient are the program's, then its result,
/// then the gradient of the result. Rules use the result if they can, so that operands need not be
/// kept.
///
/// # Panics
/// If there are more than 254 inputs.
#[must_use]
pub fn derivative(program: &ScalarProgram, input: u8, n: usize) -> Option<ScalarProgram> {
    let mut builder = ScalarBuilder::default();
    let inputs: Vec<Register> = (0..n + 2)
        .map(|it| builder.input(u8::try_from(it).expect("maps have few inputs")))
        .collect();
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
        for (source, term) in terms(&mut builder, instruction, &registers, registers[at], gradient)
        {
            let slot = &mut adjoints[source as usize];
            *slot = Some(slot.map_or(term, |sum| builder.add(sum, term)));
        }
    }
    total.map(|result| builder.finish(result))
}

/// Returns the rules: for each register that an instruction reads, its term of the gradient `g`;
/// `y` is the instruction's result.
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
        Instruction::Input(_)
        | Instruction::Integer(_)
        | Instruction::Scalar(_)
        | Instruction::Constant(_)
        | Instruction::IntegerConstant(_) => Vec::new(),
        Instruction::Unary(function, x) => {
            unary_term(b, function, of(x), y, g).map(|term| (x, term)).into_iter().collect()
        }
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

fn unary_term(
    b: &mut ScalarBuilder,
    function: Unary,
    x: Register,
    y: Register,
    g: Register,
) -> Option<Register> {
    let (zero, one) = (b.constant(0.0), b.constant(1.0));
    Some(match function {
        Unary::Detach | Unary::Float | Unary::Floor | Unary::Round => return None,
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
        // d (e^x - 1) = e^x g; of y = -1 nothing would be left
        Unary::Expm1 => {
            let power = b.unary(Unary::Exp, x);
            b.mul(g, power)
        }
        // d log(1 + x) = g / (1 + x)
        Unary::Log1p => {
            let sum = b.add(x, one);
            b.div(g, sum)
        }
        // d sin(x) = cos(x) g
        Unary::Sin => {
            let slope = b.unary(Unary::Cos, x);
            b.mul(g, slope)
        }
        // d cos(x) = -sin(x) g
        Unary::Cos => {
            let sine = b.unary(Unary::Sin, x);
            let slope = b.unary(Unary::Negate, sine);
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
        // d (x - floor(x / z) z) = g by x, - floor(x / z) g by z
        Binary::Remainder => {
            let quotient = b.binary(Binary::FloorDivide, x, z);
            let product = b.mul(g, quotient);
            [Some(g), Some(b.unary(Unary::Negate, product))]
        }
        // The larger one has the gradient; equal ones share it.
        Binary::Maximum => {
            let (zero, half) = (b.constant(0.0), b.scale(g, 0.5));
            let (is_equal, is_greater) = (b.equal(x, z), b.binary(Binary::Greater, x, z));
            let (by_x, by_z) = (b.select(is_greater, g, zero), b.select(is_greater, zero, g));
            [Some(b.select(is_equal, half, by_x)), Some(b.select(is_equal, half, by_z))]
        }
        Binary::Power => {
            let [by_x, by_z] = power_terms(b, x, z, y).map(|slope| b.mul(g, slope));
            [Some(by_x), Some(by_z)]
        }
        Binary::FloorDivide
        | Binary::Equal
        | Binary::Greater
        | Binary::GreaterOrEqual
        | Binary::EqualIntegers
        | Binary::GreaterInteger
        | Binary::AddIntegers
        | Binary::SubtractIntegers
        | Binary::MultiplyIntegers
        | Binary::FloorDivideIntegers
        | Binary::RemainderOfIntegers
        | Binary::Noise => [None, None],
    }
}

/// Returns the derivatives of `y = x^z`: `z x^(z - 1)` by `x`, which is 0 where `z` is 0, and
/// `y log(x)` by `z`, which is 0 where `x` is 0 and `z` is not negative, as in PyTorch.
fn power_terms(b: &mut ScalarBuilder, x: Register, z: Register, y: Register) -> [Register; 2] {
    let (zero, one) = (b.constant(0.0), b.constant(1.0));
    let rest = b.sub(z, one);
    let lower = b.binary(Binary::Power, x, rest);
    let (by_x, is_constant) = (b.mul(z, lower), b.equal(z, zero));
    let (logarithm, is_zero) = (b.unary(Unary::Log, x), b.equal(x, zero));
    let is_negative = b.greater(zero, z);
    let by_z = b.mul(y, logarithm);
    let of_zero = b.select(is_negative, by_z, zero);
    [b.select(is_constant, zero, by_x), b.select(is_zero, of_zero, by_z)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::{binary, unary};

    fn check(program: &ScalarProgram, expected: [&str; 2]) {
        for (input, expected) in [0, 1].into_iter().zip(expected) {
            let text = derivative(program, input, 2).map_or("none".to_owned(), |it| it.to_string());
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
    fn gradients_of_powers_are_those_of_pytorch() {
        let program = binary(Binary::Power);
        let slopes = [0, 1].map(|input| derivative(&program, input, 2).expect("both are read"));
        // x, y, then the derivatives of x^y by both.
        for (x, y, by_x, by_y) in [
            (2.0, 3.0, 12.0, 8.0 * 2.0_f64.ln()),
            (0.0, 3.0, 0.0, 0.0),
            (0.0, 1.0, 1.0, 0.0),
            (0.0, 0.0, 0.0, 0.0),
            (5.0, 0.0, 0.0, 5.0_f64.ln()),
            (-2.0, 2.0, -4.0, f64::NAN),
            (0.0, -1.0, f64::NEG_INFINITY, f64::NEG_INFINITY),
        ] {
            let inputs = [x, y, program.evaluate(&[x, y], &[])[0], 1.0];
            let found = slopes.each_ref().map(|it| it.evaluate(&inputs, &[])[0]);
            for (found, expected) in found.into_iter().zip([by_x, by_y]) {
                let is_same = found == expected || found.is_nan() && expected.is_nan();
                assert!(is_same, "{x}^{y}: {found}, expected {expected}");
            }
        }
    }
}
