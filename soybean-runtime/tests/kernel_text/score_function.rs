//! Functions of scores, by a number.

use soybean_plan::{Binary, Instruction, Register, ScalarProgram, ScoreFunction, Unary};

/// Returns a function for `n` heads: of heads and positions, of positions that hides keys, of
/// scores alone, or none.
pub(crate) fn score_function(kind: usize, n: usize) -> Option<ScoreFunction> {
    match kind % 4 {
        0 => Some(capped(n)),
        1 => Some(ScoreFunction { score: block_mask(), slope: None, heads: None }),
        2 => {
            let mut it = Instructions::default();
            let (score, slope) = it.soft_cap();
            let (score, slope) = (it.finish(score), it.finish(slope));
            Some(ScoreFunction { score, slope: Some(slope), heads: None })
        }
        _ => None,
    }
}

/// `2 tanh(score / 2) - (query - key) mod 16 * head / 4`, for keys at a distance that 3 does not
/// divide with the rest 1.
fn capped(n: usize) -> ScoreFunction {
    let mut it = Instructions::default();
    let (score, slope) = it.soft_cap();
    let (query, key) = (it.integer(ScoreFunction::QUERY), it.integer(ScoreFunction::KEY));
    let head = it.integer(ScoreFunction::HEAD);
    let distance = it.binary(Binary::SubtractIntegers, query, key);
    let sixteen = it.push(Instruction::IntegerConstant(16));
    let rest = it.binary(Binary::RemainderOfIntegers, distance, sixteen);
    let (rest, head) = (it.unary(Unary::Float, rest), it.unary(Unary::Float, head));
    let quarter = it.push(Instruction::Constant(0.25));
    let factor = it.binary(Binary::Multiply, head, quarter);
    let bias = it.binary(Binary::Multiply, rest, factor);
    let biased = it.binary(Binary::Subtract, score, bias);
    let [three, one] = [3, 1].map(|number| it.push(Instruction::IntegerConstant(number)));
    let rest = it.binary(Binary::RemainderOfIntegers, distance, three);
    let is_hidden = it.binary(Binary::EqualIntegers, rest, one);
    let hidden = it.push(Instruction::Constant(f64::NEG_INFINITY));
    let score = it.push(Instruction::Select(is_hidden, hidden, biased));
    ScoreFunction { score: it.finish(score), slope: Some(it.finish(slope)), heads: Some(n) }
}

/// The score of keys in an earlier block of 20 positions.
fn block_mask() -> ScalarProgram {
    let mut it = Instructions::default();
    let score = it.push(Instruction::Input(0));
    let length = it.push(Instruction::IntegerConstant(20));
    let [query, key] = [ScoreFunction::QUERY, ScoreFunction::KEY].map(|input| {
        let position = it.integer(input);
        it.binary(Binary::FloorDivideIntegers, position, length)
    });
    let is_earlier = it.binary(Binary::GreaterInteger, query, key);
    let hidden = it.push(Instruction::Constant(f64::NEG_INFINITY));
    let score = it.push(Instruction::Select(is_earlier, score, hidden));
    it.finish(score)
}

/// A program that grows.
#[derive(Default)]
struct Instructions(Vec<Instruction>);

impl Instructions {
    fn push(&mut self, instruction: Instruction) -> Register {
        self.0.push(instruction);
        Register::try_from(self.0.len() - 1).unwrap()
    }

    fn integer(&mut self, input: u8) -> Register {
        self.push(Instruction::Integer(input))
    }

    fn unary(&mut self, function: Unary, x: Register) -> Register {
        self.push(Instruction::Unary(function, x))
    }

    fn binary(&mut self, function: Binary, x: Register, y: Register) -> Register {
        self.push(Instruction::Binary(function, x, y))
    }

    /// Adds `2 tanh(score / 2)` and its derivative.
    fn soft_cap(&mut self) -> (Register, Register) {
        let (score, two) =
            (self.push(Instruction::Input(0)), self.push(Instruction::Constant(2.0)));
        let half = self.binary(Binary::Divide, score, two);
        let tanh = self.unary(Unary::Tanh, half);
        let capped = self.binary(Binary::Multiply, tanh, two);
        let one = self.push(Instruction::Constant(1.0));
        let square = self.binary(Binary::Multiply, tanh, tanh);
        (capped, self.binary(Binary::Subtract, one, square))
    }

    /// Returns the program up to a result.
    fn finish(&self, result: Register) -> ScalarProgram {
        let instructions = self.0[..=usize::from(result)].to_vec();
        ScalarProgram { instructions: instructions.into(), results: vec![result].into() }
    }
}
