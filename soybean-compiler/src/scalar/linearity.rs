//! Sets of inputs in which a scalar program is linear: `f(x + y) = f(x) + f(y)` in them together,
//! whatever the other inputs are. Ranks may then compute it on their own terms of sums.

use soybean_plan::{Binary, Instruction, Register, ScalarProgram, Unary};

/// The sets of inputs in which a register is linear, and those on which it does not depend, each as
/// a bit. Zero is both.
#[derive(Clone, Copy)]
struct Dependence {
    linear: u64,
    free: u64,
}

/// The bit of all inputs together that are numbers. Other bits are each for the input alone.
const ALL: u8 = 63;

/// Returns the sets of inputs, each in increasing order, in which a program is linear: all inputs
/// together that are numbers, and each alone. Further sets are not looked for.
pub(crate) fn linear_inputs(program: &ScalarProgram) -> Vec<Vec<usize>> {
    let bits = linear_in(program, |input| 1 << ALL | 1_u64.checked_shl(input.into()).unwrap_or(0));
    if bits == 0 {
        return Vec::new();
    }
    let number = |it: &Instruction| match it {
        Instruction::Input(input) => Some(*input),
        _ => None,
    };
    let mut inputs: Vec<u8> = program.instructions.iter().filter_map(number).collect();
    inputs.sort_unstable();
    inputs.dedup();
    let is_linear = |bit: u8| bits >> bit & 1 == 1;
    let all = is_linear(ALL).then(|| inputs.iter().map(|it| usize::from(*it)).collect());
    let is_alone = |it: &&u8| inputs.len() > 1 && **it < ALL && is_linear(**it);
    let each = inputs.iter().filter(is_alone).map(|it| vec![usize::from(*it)]);
    all.into_iter().chain(each).collect()
}

/// Returns whether a program is linear in its first inputs together, so many of them.
pub(crate) fn is_linear_in_first(program: &ScalarProgram, n_inputs: usize) -> bool {
    linear_in(program, |input| u64::from(usize::from(input) < n_inputs)) & 1 == 1
}

/// Returns the sets in which a program with one result is linear, given those with each input.
fn linear_in(program: &ScalarProgram, sets_with: impl Fn(u8) -> u64) -> u64 {
    let mut registers: Vec<Dependence> = Vec::with_capacity(program.instructions.len());
    for instruction in program.instructions.iter() {
        let next = of_instruction(instruction, &sets_with, &registers);
        registers.push(next);
    }
    let [result] = program.results[..] else { return 0 };
    let Dependence { linear, free } = registers[usize::from(result)];
    linear & !free
}

fn of_instruction(
    instruction: &Instruction,
    with: impl Fn(u8) -> u64,
    registers: &[Dependence],
) -> Dependence {
    const FREE: Dependence = Dependence { linear: 0, free: u64::MAX };
    let of = |register: Register| registers[usize::from(register)];
    match *instruction {
        Instruction::Input(input) => Dependence { linear: with(input), free: !with(input) },
        // An input of integers is none of the inputs that are numbers.
        Instruction::Integer(input) => Dependence { linear: 0, free: !with(input) | 1 << ALL },
        Instruction::Constant(0.0) => Dependence { linear: u64::MAX, free: u64::MAX },
        Instruction::Constant(_) | Instruction::Scalar(_) | Instruction::IntegerConstant(_) => FREE,
        Instruction::Unary(Unary::Negate | Unary::Detach, x) => of(x),
        Instruction::Unary(_, x) => Dependence { linear: 0, free: of(x).free },
        Instruction::Binary(function, x, y) => {
            let (x, y) = (of(x), of(y));
            let linear = match function {
                Binary::Add | Binary::Subtract => x.linear & y.linear,
                Binary::Multiply => x.linear & y.free | x.free & y.linear,
                Binary::Divide => x.linear & y.free,
                Binary::FloorDivide
                | Binary::Remainder
                | Binary::Maximum
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
                | Binary::Power
                | Binary::Noise => 0,
            };
            Dependence { linear, free: x.free & y.free }
        }
        Instruction::Select(condition, x, y) => {
            let (condition, x, y) = (of(condition), of(x), of(y));
            let linear = condition.free & x.linear & y.linear;
            Dependence { linear, free: condition.free & x.free & y.free }
        }
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

    /// Checks for every set of inputs without integers whether a program is linear in it, on random
    /// numbers.
    fn assert_by_numbers(program: &ScalarProgram) {
        let n_inputs = super::super::inputs(program).last().map_or(0, |it| usize::from(*it) + 1);
        let mut state = 7;
        let mut number = || {
            state = next_state(state);
            (mixed(state) % 1000) as f64 / 250.0 - 2.0
        };
        for mask in 1..1_usize << n_inputs {
            let set: Vec<usize> = (0..n_inputs).filter(|it| mask >> it & 1 == 1).collect();
            let is_of_set = |it: &Instruction| matches!(it, Instruction::Integer(it) if set.contains(&usize::from(*it)));
            if program.instructions.iter().any(is_of_set) {
                continue;
            }
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
            let with = |input: u8| u64::from(set.contains(&usize::from(input)));
            let found = linear_in(program, with) & 1 == 1;
            assert_eq!(found, is_linear, "{program} in {set:?}");
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
        // A mask of integers.
        check(
            |it| {
                let [index, first, second] = [it.integer(0), it.input(1), it.input(2)];
                let (one, sum) = (it.integer_constant(1), it.add(first, second));
                let zero = it.constant(0.0);
                let is_outside = it.greater(index, one);
                it.select(is_outside, zero, sum)
            },
            &[&[1, 2]],
        );
        // A number that comes from an integer scales the others.
        check(
            |it| {
                let (scale, x) = (it.float(0), it.input(1));
                it.mul(scale, x)
            },
            &[&[1]],
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
