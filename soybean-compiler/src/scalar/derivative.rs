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
        Unary::Detach | Unary::Float => return None,
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
        Binary::Equal
        | Binary::Greater
        | Binary::EqualIntegers
        | Binary::GreaterInteger
        | Binary::Noise => [None, None],
    }
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
}
