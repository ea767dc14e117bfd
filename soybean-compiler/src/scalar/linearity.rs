//! Sets of inputs in which a scalar program is linear: `f(x + y) = f(x) + f(y)` in them together,
//! whatever the other inputs are. Ranks may then compute it on their own terms of sums.

use std::collections::BTreeSet;

use soybean_plan::{Binary, Instruction, Register, ScalarProgram, Unary};

/// How a register depends on a set of inputs.
#[derive(Clone, Copy, PartialEq)]
enum Dependence {
    /// Not at all.
    Free,
    /// It is zero, which is linear in any inputs.
    Zero,
    Linear,
    Other,
}

/// Returns the sets of inputs, each in increasing order, in which a program is linear: all inputs
/// together that are numbers, and each alone. Further sets are not looked for.
pub(crate) fn linear_inputs(program: &ScalarProgram) -> Vec<Vec<usize>> {
    let number = |it: &Instruction| match it {
        Instruction::Input(input) => Some(usize::from(*input)),
        _ => None,
    };
    let all: BTreeSet<usize> = program.instructions.iter().filter_map(number).collect();
    let all: Vec<usize> = all.into_iter().collect();
    let each = all.iter().filter(|_| all.len() > 1).map(|it| vec![*it]);
    let sets = [all.clone()].into_iter().chain(each);
    sets.filter(|it| is_linear_in(program, it)).collect()
}

/// Returns whether a program with one result is linear in these inputs together.
pub(crate) fn is_linear_in(program: &ScalarProgram, inputs: &[usize]) -> bool {
    let mut registers: Vec<Dependence> = Vec::with_capacity(program.instructions.len());
    for instruction in program.instructions.iter() {
        let next = of_instruction(instruction, inputs, &registers);
        registers.push(next);
    }
    let is_linear = |it: &Register| registers[usize::from(*it)] == Dependence::Linear;
    matches!(&program.results[..], [result] if is_linear(result))
}

fn of_instruction(
    instruction: &Instruction,
    inputs: &[usize],
    registers: &[Dependence],
) -> Dependence {
    use Dependence::{Free, Linear, Other, Zero};
    let of = |register: Register| registers[usize::from(register)];
    let is_free = |register: Register| matches!(of(register), Free | Zero);
    let is_of_set = |input: u8| inputs.contains(&usize::from(input));
    match *instruction {
        Instruction::Input(input) if is_of_set(input) => Linear,
        Instruction::Integer(input) if is_of_set(input) => Other,
        Instruction::Constant(0.0) => Zero,
        Instruction::Input(_)
        | Instruction::Integer(_)
        | Instruction::Constant(_)
        | Instruction::Scalar(_)
        | Instruction::IntegerConstant(_) => Free,
        Instruction::Unary(Unary::Negate | Unary::Detach, x) => of(x),
        Instruction::Unary(_, x) => {
            if is_free(x) {
                Free
            } else {
                Other
            }
        }
        Instruction::Binary(Binary::Add | Binary::Subtract, x, y) => match (of(x), of(y)) {
            (Zero, other) | (other, Zero) => other,
            (Free, Free) => Free,
            (Linear, Linear) => Linear,
            (Free | Linear | Other, Free | Linear | Other) => Other,
        },
        Instruction::Binary(Binary::Multiply, x, y) => match (of(x), of(y)) {
            (Linear, Free | Zero) | (Free | Zero, Linear) => Linear,
            (Free | Zero, Free | Zero) => Free,
            (Linear | Other, _) | (_, Other) => Other,
        },
        Instruction::Binary(Binary::Divide, x, y) if of(x) == Linear && is_free(y) => Linear,
        Instruction::Binary(_, x, y) => {
            if is_free(x) && is_free(y) {
                Free
            } else {
                Other
            }
        }
        Instruction::Select(condition, ..) if !is_free(condition) => Other,
        Instruction::Select(_, x, y) => match (of(x), of(y)) {
            (Zero, Zero) => Zero,
            (Free | Zero, Free | Zero) => Free,
            (Linear, Linear | Zero) | (Zero, Linear) => Linear,
            (Linear | Other, _) | (Free, Linear) | (_, Other) => Other,
        },
    }
}

#[cfg(test)]
mod tests {
    use soybean_plan::random::{mixed, next_state};

    use super::{super::ScalarBuilder, *};

    fn check(build: impl Fn(&mut ScalarBuilder) -> Register, expected: &[&[usize]]) {
        let mut it = ScalarBuilder::default();
        let result = build(&mut it);
        let program = it.finish(result);
        assert_eq!(linear_inputs(&program), expected, "{program}");
        assert_by_numbers(&program);
    }

    /// Checks for every set of inputs whether a program is linear in it, on random numbers.
    fn assert_by_numbers(program: &ScalarProgram) {
        let n_inputs = super::super::inputs(program).last().map_or(0, |it| usize::from(*it) + 1);
        let mut state = 7;
        let mut number = || {
            state = next_state(state);
            (mixed(state) % 1000) as f64 / 250.0 - 2.0
        };
        for mask in 1..1_usize << n_inputs {
            let set: Vec<usize> = (0..n_inputs).filter(|it| mask >> it & 1 == 1).collect();
            let mut is_linear = true;
            for _ in 0..40 {
                let all = |of: &mut dyn FnMut(usize) -> f64| -> Vec<f64> {
                    (0..n_inputs).map(of).collect()
                };
                let x = all(&mut |_| number());
                let y = all(&mut |it| if set.contains(&it) { number() } else { x[it] });
                let both = all(&mut |it| if set.contains(&it) { x[it] + y[it] } else { x[it] });
                let [x, y, both] = [x, y, both].map(|it| program.evaluate(&it, &[0.5; 8])[0]);
                // Double precision rounds at 1e-16; quotients by small numbers lose some digits.
                is_linear &= (x + y - both).abs() <= 1e-9 * (x.abs() + y.abs() + 1.0);
            }
            assert_eq!(is_linear_in(program, &set), is_linear, "{program} in {set:?}");
        }
    }

    #[test]
    fn sums_are_linear_in_all_their_terms_together() {
        check(|it| it.input(0), &[&[0]]);
        check(|it| sum_of(it, &[0, 1, 2]), &[&[0, 1, 2]]);
        check(
            |it| {
                let (x, y) = (it.input(0), it.input(1));
                it.sub(x, y)
            },
            &[&[0, 1]],
        );
        check(
            |it| {
                let (x, one) = (it.input(0), it.constant(1.0));
                it.add(x, one)
            },
            &[],
        );
        check(
            |it| {
                let (x, zero) = (it.input(0), it.constant(0.0));
                it.sub(zero, x)
            },
            &[&[0]],
        );
    }

    fn sum_of(it: &mut ScalarBuilder, inputs: &[u8]) -> Register {
        let inputs: Vec<Register> = inputs.iter().map(|&at| it.input(at)).collect();
        inputs[1..].iter().fold(inputs[0], |sum, &input| it.add(sum, input))
    }

    #[test]
    fn products_are_linear_in_each_factor() {
        check(
            |it| {
                let (x, y) = (it.input(0), it.input(1));
                it.mul(x, y)
            },
            &[&[0], &[1]],
        );
        check(
            |it| {
                let x = it.input(0);
                it.mul(x, x)
            },
            &[],
        );
        check(
            |it| {
                let (x, y) = (it.input(0), it.input(1));
                it.div(x, y)
            },
            &[&[0]],
        );
        // x + x y = x (1 + y)
        check(
            |it| {
                let (x, y) = (it.input(0), it.input(1));
                let product = it.mul(x, y);
                it.add(x, product)
            },
            &[&[0]],
        );
        // s x + t y is linear in x and y, and in s and t, but not in all of them or in one alone.
        check(
            |it| {
                let first = [0, 1].map(|at| it.input(at));
                let second = [2, 3].map(|at| it.input(at));
                let (first, second) = (it.mul(first[0], first[1]), it.mul(second[0], second[1]));
                it.add(first, second)
            },
            &[],
        );
    }

    #[test]
    fn selections_are_linear_in_what_they_choose_from() {
        // In both alternatives, but not in the condition: one that is not looked for.
        check(
            |it| {
                let [condition, x, y] = [0, 1, 2].map(|at| it.input(at));
                let condition = it.is_positive(condition);
                it.select(condition, x, y)
            },
            &[],
        );
        // A mask of padding.
        check(
            |it| {
                let (condition, x, zero) = (it.input(0), it.input(1), it.constant(0.0));
                let condition = it.is_positive(condition);
                it.select(condition, x, zero)
            },
            &[&[1]],
        );
        check(
            |it| {
                let (x, zero) = (it.input(0), it.constant(0.0));
                let condition = it.is_positive(x);
                it.select(condition, x, zero)
            },
            &[],
        );
    }

    #[test]
    fn other_functions_are_not_linear() {
        check(
            |it| {
                let x = it.input(0);
                it.unary(Unary::Tanh, x)
            },
            &[],
        );
        check(
            |it| {
                let (x, y) = (it.input(0), it.input(1));
                let y = it.unary(Unary::Exp, y);
                it.mul(x, y)
            },
            &[&[0]],
        );
        check(
            |it| {
                let (x, y) = (it.input(0), it.input(1));
                it.binary(Binary::Maximum, x, y)
            },
            &[],
        );
    }
}
