//! The meaning of scalar programs, in double precision.

use super::{
    Binary, Instruction, ScalarProgram, Unary, floor_divide, floor_of_quotient, noise, remainder,
    remainder_by_floor,
};

impl ScalarProgram {
    /// Returns the results for these elements of the inputs and these run-time scalars.
    #[must_use]
    pub fn evaluate(&self, inputs: &[f64], scalars: &[f64]) -> Vec<f64> {
        let mut registers: Vec<f64> = Vec::with_capacity(self.instructions.len());
        for instruction in self.instructions.iter() {
            let of = |register: u16| registers[usize::from(register)];
            registers.push(match *instruction {
                Instruction::Input(input) | Instruction::Integer(input) => {
                    inputs[usize::from(input)]
                }
                Instruction::Scalar(scalar) => scalars[usize::from(scalar)],
                Instruction::Constant(value) => value,
                Instruction::IntegerConstant(value) => value.into(),
                Instruction::Unary(function, x) => function.evaluate(of(x)),
                Instruction::Binary(function, x, y) => function.evaluate(of(x), of(y)),
                Instruction::Select(condition, _, y) if of(condition) == 0.0 => of(y),
                Instruction::Select(_, x, _) => of(x),
            });
        }
        self.results.iter().map(|it| registers[usize::from(*it)]).collect()
    }
}

impl Unary {
    /// Returns the value of the function.
    #[must_use]
    pub fn evaluate(self, x: f64) -> f64 {
        match self {
            Self::Negate => -x,
            Self::Relu if x < 0.0 => 0.0,
            Self::Relu | Self::Detach | Self::Float => x,
            Self::Exp => x.exp(),
            Self::Log => x.ln(),
            Self::Sqrt => x.sqrt(),
            Self::Tanh => x.tanh(),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Erf => erf(x),
            Self::Expm1 => x.exp_m1(),
            Self::Log1p => x.ln_1p(),
            Self::Sin => x.sin(),
            Self::Cos => x.cos(),
            Self::Floor => x.floor(),
            Self::Round => x.round_ties_even(),
        }
    }
}

impl Binary {
    /// Returns the value of the function.
    #[must_use]
    pub fn evaluate(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Add => x + y,
            Self::Subtract => x - y,
            Self::Multiply => x * y,
            Self::Divide => x / y,
            Self::FloorDivide => floor_of_quotient(x, y, x % y),
            Self::Remainder => remainder_by_floor(x % y, y),
            Self::Maximum if x.is_nan() || y.is_nan() => f64::NAN,
            Self::Maximum => x.max(y),
            Self::Power => x.powf(y),
            Self::Equal | Self::EqualIntegers => f64::from(x == y),
            Self::Greater | Self::GreaterInteger => f64::from(x > y),
            Self::GreaterOrEqual => f64::from(x >= y),
            Self::AddIntegers => integers(x, y, i32::wrapping_add),
            Self::SubtractIntegers => integers(x, y, i32::wrapping_sub),
            Self::MultiplyIntegers => integers(x, y, i32::wrapping_mul),
            Self::FloorDivideIntegers => integers(x, y, floor_divide),
            Self::RemainderOfIntegers => integers(x, y, remainder),
            #[expect(clippy::cast_possible_truncation, reason = "noise is of single precision")]
            Self::Noise => f64::from(noise(x as f32, y as f32)),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "both are integers of 32 bits")]
fn integers(x: f64, y: f64, function: fn(i32, i32) -> i32) -> f64 {
    function(x as i32, y as i32).into()
}

/// Returns the error function: `2 / sqrt(pi) e^-x^2 sum of 2^n x^(2n+1) / (2n+1)!!`.
///
/// All terms have one sign, so that none cancel.
fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    // `1 - erf(6)` is below the precision of a double.
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}
