//! Recognition of maps that are epilogues of products.

use soybean_plan::{Binary, Instruction, Map, Register, ScalarProgram, Shape, Strides, Unary};

use super::Function;

/// Function that a map applies to a product. Inputs are given by their index among the map's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// A function of the product, after an optional bias is added.
    Forward { function: Function, bias: Option<usize> },
    /// The product if `result`, of an earlier relu, is positive, otherwise 0.
    ReluGradient { result: usize },
    /// The product times the derivative of gelu at the sum of these inputs, one or two.
    GeluGradient { argument: Vec<usize> },
}

/// Returns the pattern of the map for this input, if it is known.
pub(super) fn pattern(map: &Map, product: usize) -> Option<Pattern> {
    let program = &map.program;
    let [result] = program.results[..] else { return None };
    let n_inputs = map.inputs.len();
    let argument: Vec<usize> = (0..n_inputs).filter(|it| *it != product).collect();
    if let Some((function, bias)) = piecewise(program, result, product) {
        return Some(Pattern::Forward { function, bias });
    }
    if let Some(result) = relu_gradient(program, result, product) {
        return Some(Pattern::ReluGradient { result });
    }
    if n_inputs <= 2 && computes_same(program, n_inputs, |inputs| gelu(inputs.iter().sum())) {
        return Some(Pattern::Forward {
            function: Function::Gelu,
            bias: argument.first().copied(),
        });
    }
    let of_gradient = |inputs: &[f64]| {
        inputs[product] * gelu_derivative(argument.iter().map(|&it| inputs[it]).sum())
    };
    let is_gradient = matches!(n_inputs, 2 | 3) && computes_same(program, n_inputs, of_gradient);
    is_gradient.then_some(Pattern::GeluGradient { argument })
}

/// Returns the input that a map adds to this one before a function that products can apply.
pub(crate) fn bias_of(map: &Map, product: usize) -> Option<usize> {
    match pattern(map, product)? {
        Pattern::Forward { bias, .. } => bias,
        Pattern::ReluGradient { .. } | Pattern::GeluGradient { .. } => None,
    }
}

/// Matches `x + b`, `relu(x)` or `relu(x + b)`, where `x` is this input.
fn piecewise(
    program: &ScalarProgram,
    result: Register,
    product: usize,
) -> Option<(Function, Option<usize>)> {
    let (function, argument) = match program.instructions[usize::from(result)] {
        Instruction::Unary(Unary::Relu, argument) => (Function::Relu, argument),
        _ => (Function::Identity, result),
    };
    let bias = match program.instructions[usize::from(argument)] {
        Instruction::Binary(Binary::Add, one, other) => {
            match (input(program, one)?, input(program, other)?) {
                (it, bias) | (bias, it) if it == product && bias != product => Some(bias),
                _ => return None,
            }
        }
        _ if function == Function::Relu && input(program, argument) == Some(product) => None,
        _ => return None,
    };
    Some((function, bias))
}

/// Matches `select(h > 0, x, 0)`, where `x` is this input, and returns `h`.
fn relu_gradient(program: &ScalarProgram, result: Register, product: usize) -> Option<usize> {
    let at = |register: Register| program.instructions[usize::from(register)];
    let Instruction::Select(condition, then, otherwise) = at(result) else { return None };
    let Instruction::Binary(Binary::Greater, left, right) = at(condition) else { return None };
    let is_zero = |register| at(register) == Instruction::Constant(0.0);
    let has_layout = input(program, then) == Some(product) && is_zero(otherwise) && is_zero(right);
    input(program, left).filter(|it| has_layout && *it != product)
}

fn input(program: &ScalarProgram, register: Register) -> Option<usize> {
    match program.instructions[usize::from(register)] {
        Instruction::Input(number) => Some(number.into()),
        _ => None,
    }
}

/// Number of points of each size at which two functions are compared.
const N_POINTS: u32 = 64;

/// Number of sizes, each 16 times the one before.
const N_SIZES: u32 = 17;

/// Far above the effect of reordering in double precision, and below the resolution of single
/// precision.
const TOLERANCE: f64 = 1e-10;

/// Returns true if a program computes the function. Both are analytic, so they are equal everywhere
/// if they are equal on an open set; a program that chooses is so between its bounds. Equal values
/// at scattered points of all sizes count as proof. A derivative has many equivalent forms, and the
/// compiler may change to another.
fn computes_same(
    program: &ScalarProgram,
    n_inputs: usize,
    function: impl Fn(&[f64]) -> f64,
) -> bool {
    (1..=N_POINTS * N_SIZES).all(|point| {
        // Multiples of irrational numbers, one for each input, are evenly distributed. The first
        // range, from -4 to 4, includes both tails of gelu.
        let size = 4.0 * 16.0_f64.powi((point / N_POINTS).cast_signed());
        let place = |number: usize| {
            let step =
                [0.618_033_988_749_895, 0.414_213_562_373_095, 0.732_050_807_568_877][number];
            ((f64::from(point) * step).fract() * 2.0 - 1.0) * size
        };
        let inputs: Vec<f64> = (0..n_inputs).map(place).collect();
        let expected = function(&inputs);
        value(program, &inputs)
            .is_some_and(|it| (it - expected).abs() <= TOLERANCE * (1.0 + expected.abs()))
    })
}

/// Returns the single result of a program, if all its instructions are analytic functions, or
/// choices between them.
fn value(program: &ScalarProgram, inputs: &[f64]) -> Option<f64> {
    let mut registers: Vec<f64> = Vec::new();
    for instruction in &*program.instructions {
        let at = |register: Register| registers[usize::from(register)];
        registers.push(match *instruction {
            Instruction::Input(number) => *inputs.get(usize::from(number))?,
            Instruction::Constant(value) => value,
            Instruction::Integer(_) | Instruction::IntegerConstant(_) | Instruction::Scalar(_) => {
                return None;
            }
            Instruction::Select(condition, _, y) if at(condition) == 0.0 => at(y),
            Instruction::Select(_, x, _) => at(x),
            Instruction::Unary(function, x) => match function {
                Unary::Negate => -at(x),
                Unary::Exp => at(x).exp(),
                Unary::Tanh => at(x).tanh(),
                Unary::Sigmoid => 1.0 / (1.0 + (-at(x)).exp()),
                Unary::Detach => at(x),
                Unary::Relu
                | Unary::Log
                | Unary::Sqrt
                | Unary::Erf
                | Unary::Expm1
                | Unary::Log1p
                | Unary::Sin
                | Unary::Cos
                | Unary::Floor
                | Unary::Round
                | Unary::Float => return None,
            },
            Instruction::Binary(function, x, y) => match function {
                Binary::Add => at(x) + at(y),
                Binary::Subtract => at(x) - at(y),
                Binary::Multiply => at(x) * at(y),
                Binary::Divide => at(x) / at(y),
                Binary::Greater => f64::from(at(x) > at(y)),
                Binary::GreaterOrEqual => f64::from(at(x) >= at(y)),
                Binary::FloorDivide
                | Binary::Remainder
                | Binary::Maximum
                | Binary::Power
                | Binary::Equal
                | Binary::EqualIntegers
                | Binary::GreaterInteger
                | Binary::AddIntegers
                | Binary::SubtractIntegers
                | Binary::MultiplyIntegers
                | Binary::FloorDivideIntegers
                | Binary::RemainderOfIntegers
                | Binary::Noise => return None,
            },
        });
    }
    program.results.first().map(|it| registers[usize::from(*it)])
}

const ROOT: f64 = 0.797_884_560_802_865_4; // sqrt(2 / pi)
const CUBIC: f64 = 0.044_715;

/// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`. Source: Hendrycks & Gimpel 2016.
fn gelu(x: f64) -> f64 {
    x / 2.0 * (1.0 + (ROOT * (x + CUBIC * x.powi(3))).tanh())
}

// gelu'(x) = (1 + t) / 2 + x / 2 (1 - t^2) sqrt(2 / pi) (1 + 3 0.044715 x^2), t = tanh(..)
fn gelu_derivative(x: f64) -> f64 {
    let tanh = (ROOT * (x + CUBIC * x.powi(3))).tanh();
    (1.0 + tanh) / 2.0 + x / 2.0 * (1.0 - tanh * tanh) * ROOT * (1.0 + 3.0 * CUBIC * x * x)
}

/// Returns true if the strides are those of a dense row-major tensor.
pub(super) fn is_dense(extents: &Shape, strides: &Strides) -> bool {
    let dense = extents.dense_strides();
    (0..extents.len()).all(|dim| extents[dim] == 1 || strides.0[dim] == dense.0[dim])
}

/// Returns true if the strides are those of a vector along the last dims, broadcast along all
/// others. The last dims together have this extent.
pub(super) fn is_along_columns(extents: &Shape, strides: &Strides, columns: usize) -> bool {
    let mut within = 1;
    (0..extents.len()).rev().filter(|&dim| extents[dim] != 1).all(|dim| {
        let expected = if within < columns { within } else { 0 };
        within *= extents[dim];
        strides.0[dim] == expected
    }) && within.is_multiple_of(columns)
        && ends_at(extents, columns)
}

/// Returns true if the last dims together have this extent.
fn ends_at(extents: &Shape, columns: usize) -> bool {
    let mut within = 1;
    within == columns
        || extents.iter().rev().any(|extent| {
            within *= extent;
            within == columns
        })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn map(n_inputs: usize, instructions: &[Instruction]) -> Map {
        let result = Register::try_from(instructions.len() - 1).unwrap();
        Map {
            extents: Shape::new(&[2, 3]),
            inputs: vec![Strides::new(&[3, 1]); n_inputs].into(),
            program: ScalarProgram {
                instructions: Cow::Owned(instructions.to_vec()),
                results: Cow::Owned(vec![result]),
            },
        }
    }

    use Instruction::{Constant, Input, Select};

    fn add(x: Register, y: Register) -> Instruction {
        Instruction::Binary(Binary::Add, x, y)
    }

    fn mul(x: Register, y: Register) -> Instruction {
        Instruction::Binary(Binary::Multiply, x, y)
    }

    fn forward(function: Function, bias: Option<usize>) -> Option<Pattern> {
        Some(Pattern::Forward { function, bias })
    }

    #[test]
    fn biases_and_relu_are_recognized_in_both_orders() {
        let sum = map(2, &[Input(0), Input(1), add(0, 1)]);
        assert_eq!(pattern(&sum, 0), forward(Function::Identity, Some(1)));
        assert_eq!(pattern(&sum, 1), forward(Function::Identity, Some(0)));
        let relu = Instruction::Unary(Unary::Relu, 0);
        assert_eq!(pattern(&map(1, &[Input(0), relu]), 0), forward(Function::Relu, None));
        let both = [Input(0), Input(1), add(1, 0), Instruction::Unary(Unary::Relu, 2)];
        assert_eq!(pattern(&map(2, &both), 0), forward(Function::Relu, Some(1)));
        assert_eq!(pattern(&map(1, &[Input(0), add(0, 0)]), 0), None);
        assert_eq!(pattern(&map(1, &[Input(0)]), 0), None);
        let scaled = [Input(0), Input(1), mul(0, 1), Instruction::Unary(Unary::Relu, 2)];
        assert_eq!(pattern(&map(2, &scaled), 0), None);
    }

    #[test]
    fn the_gradient_of_relu_is_recognized() {
        let greater = Instruction::Binary(Binary::Greater, 0, 2);
        let instructions = [Input(0), Input(1), Constant(0.0), greater, Select(3, 1, 2)];
        assert_eq!(pattern(&map(2, &instructions), 1), Some(Pattern::ReluGradient { result: 0 }));
        assert_eq!(pattern(&map(2, &instructions), 0), None);
        let mut leaky = instructions;
        leaky[2] = Constant(0.5);
        assert_eq!(pattern(&map(2, &leaky), 1), None);
    }

    /// `x / 2 (1 + tanh(root (x + cubic x^3)))` of register 2, in registers 3 to 13.
    fn gelu_of(root: f64, cubic: f64) -> Vec<Instruction> {
        let tail = [
            Constant(0.5),
            Constant(cubic),
            Constant(root),
            Constant(1.0),
            mul(2, 2),
            mul(7, 2),
            mul(8, 4),
            add(2, 9),
            mul(10, 5),
            Instruction::Unary(Unary::Tanh, 11),
            add(12, 6),
            mul(2, 3),
            mul(14, 13),
        ];
        [&[Input(0), Input(1), add(0, 1)][..], &tail].concat()
    }

    #[test]
    fn gelu_is_recognized_by_its_values() {
        let known = |root, cubic| pattern(&map(2, &gelu_of(root, cubic)), 0);
        assert_eq!(known(ROOT, CUBIC), forward(Function::Gelu, Some(1)));
        assert_eq!(known(ROOT, 0.0447), None);
        assert_eq!(known(0.8, CUBIC), None);
        // Above 1000, where gelu is x, x or another number is chosen.
        let bounded = |above: Register| {
            let greater = Instruction::Binary(Binary::Greater, 2, 16);
            let tail = [Constant(1000.0), greater, Select(17, above, 15)];
            pattern(&map(2, &[&gelu_of(ROOT, CUBIC)[..], &tail].concat()), 0)
        };
        assert_eq!(bounded(2), forward(Function::Gelu, Some(1)));
        assert_eq!(bounded(16), None);
    }

    #[test]
    fn the_gradient_of_gelu_is_recognized_by_its_values() {
        // x0 (1 + t) / 2 + x0 x1 / 2 (1 - t^2) root (1 + 3 cubic x1^2)
        let instructions = |three: f64| {
            vec![
                Input(0),
                Input(1),
                Constant(0.5),
                Constant(1.0),
                Constant(ROOT),
                Constant(CUBIC),
                Constant(three),
                mul(1, 1),
                mul(7, 5),
                add(3, 8),
                mul(9, 1),
                mul(10, 4),
                Instruction::Unary(Unary::Tanh, 11),
                add(12, 3),
                mul(13, 2),
                mul(12, 12),
                Instruction::Binary(Binary::Subtract, 3, 15),
                mul(8, 6),
                add(17, 3),
                mul(18, 4),
                mul(16, 19),
                mul(20, 1),
                mul(21, 2),
                add(14, 22),
                mul(23, 0),
            ]
        };
        let gradient = Some(Pattern::GeluGradient { argument: vec![1] });
        assert_eq!(pattern(&map(2, &instructions(3.0)), 0), gradient);
        assert_eq!(pattern(&map(2, &instructions(3.0)), 1), None);
        assert_eq!(pattern(&map(2, &instructions(3.001)), 0), None);
    }

    #[test]
    fn vectors_along_the_columns_may_be_several_dims() {
        let extents = Shape::new(&[4, 1, 2, 3]);
        assert!(is_along_columns(&extents, &Strides::new(&[0, 0, 0, 1]), 3));
        assert!(is_along_columns(&extents, &Strides::new(&[0, 7, 3, 1]), 6));
        assert!(!is_along_columns(&extents, &Strides::new(&[0, 0, 3, 1]), 3));
        assert!(!is_along_columns(&extents, &Strides::new(&[0, 0, 0, 1]), 6));
        assert!(!is_along_columns(&extents, &Strides::new(&[0, 0, 1, 0]), 2));
        assert!(!is_along_columns(&Shape::new(&[4, 6]), &Strides::new(&[0, 1]), 3));
        assert!(is_dense(&extents, &Strides::new(&[6, 0, 3, 1])));
        assert!(!is_dense(&extents, &Strides::new(&[6, 0, 1, 2])));
    }
}
