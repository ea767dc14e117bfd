//! Facts about the registers of a scalar program before it runs: their values or signs, and that
//! they are finite.
//!
//! Sums and products of finite numbers count as finite; exponentials do not.

use soybean_plan::{Binary, Instruction, Register, ScalarProgram, Unary};

/// A fact about a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Known {
    /// Its value.
    Value(f64),
    /// That it is neither infinite nor NaN, and its sign.
    Finite(Sign),
    Nothing,
}

/// A fact about the sign of a finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Above 0 by a margin, so that quotients by it are finite.
    Positive,
    NotNegative,
    NotPositive,
    Any,
}

impl Known {
    /// Returns what is known if it is one of the two.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == other {
            return self;
        }
        match (self.sign(), other.sign()) {
            (Some(x), Some(y)) => Self::Finite(x.or(y)),
            _ => Self::Nothing,
        }
    }

    /// Returns what is known of a sum of such numbers.
    pub(crate) fn sum(self) -> Self {
        self.sign().map_or(Self::Nothing, Self::Finite)
    }

    /// Returns the sign of a finite number.
    fn sign(self) -> Option<Sign> {
        match self {
            Self::Value(value) if value > 0.0 && value.is_finite() => Some(Sign::Positive),
            Self::Value(value) if value < 0.0 && value.is_finite() => Some(Sign::NotPositive),
            Self::Value(0.0) => Some(Sign::NotNegative),
            Self::Finite(sign) => Some(sign),
            Self::Value(_) | Self::Nothing => None,
        }
    }
}

impl Sign {
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Positive, Self::Positive) => Self::Positive,
            (Self::NotPositive, Self::NotPositive) => Self::NotPositive,
            (Self::Positive | Self::NotNegative, Self::Positive | Self::NotNegative) => {
                Self::NotNegative
            }
            _ => Self::Any,
        }
    }

    const fn negative(self) -> Self {
        match self {
            Self::Positive | Self::NotNegative => Self::NotPositive,
            Self::NotPositive => Self::NotNegative,
            Self::Any => Self::Any,
        }
    }

    fn of_sum(self, other: Self) -> Self {
        match (self, other) {
            (Self::Positive, Self::NotNegative) | (Self::NotNegative, Self::Positive) => {
                Self::Positive
            }
            _ => self.or(other),
        }
    }

    fn of_maximum(self, other: Self) -> Self {
        match (self, other) {
            (Self::Positive, _) | (_, Self::Positive) => Self::Positive,
            (Self::NotNegative, _) | (_, Self::NotNegative) => Self::NotNegative,
            _ => self.or(other),
        }
    }

    /// Returns the sign of a product or quotient, which may be 0 where neither factor is.
    fn of_product(self, other: Self) -> Self {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => Self::Any,
            (x, y) if (x == Self::NotPositive) == (y == Self::NotPositive) => Self::NotNegative,
            _ => Self::NotPositive,
        }
    }
}

/// Returns what is known of the result of a program, given what is known of its inputs.
pub(crate) fn known_result(program: &ScalarProgram, inputs: &[Known]) -> Known {
    known_registers(program, inputs)[usize::from(program.results[0])]
}

/// Returns what is known of each register of a program, given what is known of its inputs.
pub(super) fn known_registers(program: &ScalarProgram, inputs: &[Known]) -> Vec<Known> {
    let mut registers: Vec<Known> = Vec::with_capacity(program.instructions.len());
    for instruction in program.instructions.iter() {
        let of = |register: Register| registers[usize::from(register)];
        registers.push(match *instruction {
            Instruction::Input(input) => inputs[usize::from(input)],
            // Learning rates and the other run-time scalars are finite.
            Instruction::Integer(_) | Instruction::Scalar(_) => Known::Finite(Sign::Any),
            Instruction::Constant(value) => Known::Value(value),
            Instruction::IntegerConstant(value) => Known::Value(value.into()),
            Instruction::Unary(function, x) => unary(function, of(x)),
            Instruction::Binary(Binary::Multiply, x, y) if x == y => square(of(x)),
            // A term that has a gradient alone.
            Instruction::Binary(Binary::Subtract, x, y)
                if of(x) != Known::Nothing
                    && program.instructions[usize::from(y)]
                        == Instruction::Unary(Unary::Detach, x) =>
            {
                Known::Value(0.0)
            }
            Instruction::Binary(function, x, y) => binary(function, of(x), of(y)),
            Instruction::Select(condition, x, y) => match of(condition) {
                Known::Value(0.0) => of(y),
                Known::Value(_) => of(x),
                Known::Finite(_) | Known::Nothing => of(x).or(of(y)),
            },
        });
    }
    registers
}

fn unary(function: Unary, x: Known) -> Known {
    let sign = match x {
        Known::Value(x) => return Known::Value(function.evaluate(x)),
        Known::Nothing => return Known::Nothing,
        Known::Finite(sign) => sign,
    };
    let sign = match (function, sign) {
        (Unary::Negate, sign) => sign.negative(),
        (Unary::Detach | Unary::Float, sign) => sign,
        (Unary::Sqrt | Unary::Relu, Sign::Positive) => Sign::Positive,
        (Unary::Relu | Unary::Sigmoid, _)
        | (Unary::Exp, Sign::NotPositive)
        | (Unary::Sqrt | Unary::Log1p, Sign::NotNegative)
        | (Unary::Log1p, Sign::Positive) => Sign::NotNegative,
        (Unary::Log, Sign::Positive) | (Unary::Expm1, Sign::NotPositive) => Sign::Any,
        (Unary::Tanh | Unary::Erf | Unary::Sin | Unary::Cos | Unary::Floor | Unary::Round, _) => {
            Sign::Any
        }
        (Unary::Exp | Unary::Log | Unary::Sqrt | Unary::Expm1 | Unary::Log1p, _) => {
            return Known::Nothing;
        }
    };
    Known::Finite(sign)
}

fn square(x: Known) -> Known {
    match x {
        Known::Value(x) => Known::Value(x * x),
        Known::Finite(_) => Known::Finite(Sign::NotNegative),
        Known::Nothing => Known::Nothing,
    }
}

fn binary(function: Binary, x: Known, y: Known) -> Known {
    match (function, x, y) {
        (_, Known::Value(x), Known::Value(y)) => return Known::Value(function.evaluate(x, y)),
        (Binary::Multiply, Known::Value(0.0), Known::Finite(_))
        | (Binary::Multiply, Known::Finite(_), Known::Value(0.0))
        | (
            Binary::Divide | Binary::FloorDivide | Binary::Remainder,
            Known::Value(0.0),
            Known::Finite(Sign::Positive),
        ) => {
            return Known::Value(0.0);
        }
        _ => {}
    }
    let both = x.sign().zip(y.sign());
    let sign = match function {
        Binary::Add => both.map(|(x, y)| x.of_sum(y)),
        Binary::Subtract => both.map(|(x, y)| x.of_sum(y.negative())),
        Binary::Maximum => both.map(|(x, y)| x.of_maximum(y)),
        Binary::Multiply => both.map(|(x, y)| x.of_product(y)),
        Binary::Divide | Binary::FloorDivide => {
            both.filter(|it| it.1 == Sign::Positive).map(|(x, y)| x.of_product(y))
        }
        Binary::Remainder => both.filter(|it| it.1 == Sign::Positive).map(|_| Sign::NotNegative),
        Binary::Power => None,
        Binary::Equal
        | Binary::Greater
        | Binary::GreaterOrEqual
        | Binary::EqualIntegers
        | Binary::GreaterInteger
        | Binary::Noise => Some(Sign::NotNegative),
        Binary::AddIntegers
        | Binary::SubtractIntegers
        | Binary::MultiplyIntegers
        | Binary::FloorDivideIntegers
        | Binary::RemainderOfIntegers => Some(Sign::Any),
    };
    sign.map_or(Known::Nothing, Known::Finite)
}
