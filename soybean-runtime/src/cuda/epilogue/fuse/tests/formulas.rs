//! Scalar programs of activations, in the form that the compiler emits.

use soybean_plan::{Binary, Instruction, Unary};

use Instruction::{Constant, Input as X};

const ROOT: f64 = 0.797_884_560_802_865_4;
const CUBIC: f64 = 0.044_715;

/// Returns gelu of the result of these instructions.
pub(super) fn gelu(sum: &[Instruction]) -> Vec<Instruction> {
    let (x, n) = (last(sum), u16::try_from(sum.len()).unwrap());
    let mul = |x, y| binary(Binary::Multiply, x, y);
    let tail = [
        mul(x, x),
        mul(n, x),
        Constant(CUBIC),
        mul(n + 1, n + 2),
        binary(Binary::Add, x, n + 3),
        Constant(ROOT),
        mul(n + 4, n + 5),
        Instruction::Unary(Unary::Tanh, n + 6),
        Constant(1.0),
        binary(Binary::Add, n + 7, n + 8),
        Constant(0.5),
        mul(x, n + 10),
        mul(n + 11, n + 9),
    ];
    [sum, &tail].concat()
}

/// Returns `x0` times the derivative of gelu at `x1`, or at `x1 + x2`.
pub(super) fn gelu_gradient(has_bias: bool) -> Vec<Instruction> {
    let sum = [X(0), X(1), X(2), binary(Binary::Add, 1, 2)];
    let sum = if has_bias { &sum[..] } else { &sum[..2] };
    let (x, n) = (last(sum), u16::try_from(sum.len()).unwrap());
    let [mul, add] = [Binary::Multiply, Binary::Add].map(|it| move |x, y| binary(it, x, y));
    let tail = [
        Constant(0.5),
        Constant(1.0),
        Constant(ROOT),
        Constant(CUBIC),
        Constant(3.0),
        mul(x, x),
        mul(n + 5, n + 3),
        add(n + 1, n + 6),
        mul(n + 7, x),
        mul(n + 8, n + 2),
        Instruction::Unary(Unary::Tanh, n + 9),
        add(n + 10, n + 1),
        mul(n + 11, n),
        mul(n + 10, n + 10),
        binary(Binary::Subtract, n + 1, n + 13),
        mul(n + 6, n + 4),
        add(n + 15, n + 1),
        mul(n + 16, n + 2),
        mul(n + 14, n + 17),
        mul(n + 18, x),
        mul(n + 19, n),
        add(n + 12, n + 20),
        mul(n + 21, 0),
    ];
    [sum, &tail].concat()
}

pub(super) fn binary(function: Binary, x: u16, y: u16) -> Instruction {
    Instruction::Binary(function, x, y)
}

pub(super) fn last(instructions: &[Instruction]) -> u16 {
    u16::try_from(instructions.len() - 1).unwrap()
}
