//! Scalar programs: the computation of a fused elementwise kernel for one element.

mod reference;

use std::{borrow::Cow, fmt};

/// The number of the instruction that defines the value.
pub type Register = u16;

/// Straight-line code over single precision numbers, in which each instruction defines one
/// register.
///
/// Comparisons give 1 or 0. A register holds a number or an integer. Integers come from `Integer`,
/// `IntegerConstant` and functions of integers, which alone read them, beside [`Unary::Float`] and
/// comparisons of integers. A selection of integers is one. Results that are integers are stored in
/// buffers of integers.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalarProgram {
    /// The instructions; each reads only registers of earlier ones.
    pub instructions: Cow<'static, [Instruction]>,
    /// The registers that are the results, in order.
    pub results: Cow<'static, [Register]>,
}

/// The most nodes of expressions in the text form.
const MAX_NODES: u64 = 4096;

/// One instruction of a [`ScalarProgram`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instruction {
    /// The element of this input of the kernel. Integers are converted.
    Input(u8),
    /// The element of this input of integers, unchanged. No program reads an input in both ways.
    Integer(u8),
    /// The run-time scalar with this number in the program's list.
    Scalar(u8),
    /// A constant, rounded to the precision of the kernel.
    Constant(f64),
    /// An integer.
    IntegerConstant(i32),
    /// A function of one register.
    Unary(Unary, Register),
    /// A function of two registers.
    Binary(Binary, Register, Register),
    /// The second register where the first is not 0, else the third.
    Select(Register, Register, Register),
}

impl ScalarProgram {
    /// Returns the program whose result is its only input.
    #[must_use]
    pub const fn identity() -> Self {
        Self { instructions: Cow::Borrowed(&[Instruction::Input(0)]), results: Cow::Borrowed(&[0]) }
    }

    /// Returns the number of instructions that compute, and do not only fetch a value.
    pub(crate) fn n_operations(&self) -> u64 {
        let computes = |it: &&Instruction| match it {
            Instruction::Input(_)
            | Instruction::Integer(_)
            | Instruction::Scalar(_)
            | Instruction::Constant(_)
            | Instruction::IntegerConstant(_) => false,
            Instruction::Unary(..) | Instruction::Binary(..) | Instruction::Select(..) => true,
        };
        self.instructions.iter().filter(computes).count() as u64
    }

    /// Returns whether the program reads the elements of an input as integers.
    #[must_use]
    pub fn reads_integers(&self, input: usize) -> bool {
        let reads = |it: &Instruction| match it {
            Instruction::Integer(number) => usize::from(*number) == input,
            Instruction::Input(_)
            | Instruction::Scalar(_)
            | Instruction::Constant(_)
            | Instruction::IntegerConstant(_)
            | Instruction::Unary(..)
            | Instruction::Binary(..)
            | Instruction::Select(..) => false,
        };
        self.instructions.iter().any(reads)
    }

    /// Returns a mark for each register that holds an integer.
    #[must_use]
    pub fn integers(&self) -> Vec<bool> {
        let mut are_integers: Vec<bool> = Vec::with_capacity(self.instructions.len());
        for instruction in self.instructions.iter() {
            are_integers.push(match *instruction {
                Instruction::Integer(_) | Instruction::IntegerConstant(_) => true,
                Instruction::Input(_)
                | Instruction::Scalar(_)
                | Instruction::Constant(_)
                | Instruction::Unary(..) => false,
                Instruction::Binary(function, ..) => function.gives_integers(),
                Instruction::Select(_, x, _) => are_integers[usize::from(x)],
            });
        }
        are_integers
    }

    /// Returns a mark for each result that is an integer.
    #[must_use]
    pub fn integer_results(&self) -> Vec<bool> {
        let are_integers = self.integers();
        self.results.iter().map(|it| are_integers[usize::from(*it)]).collect()
    }

    /// Returns the number of nodes of the results as expressions.
    fn n_nodes(&self) -> u64 {
        let mut nodes: Vec<u64> = Vec::with_capacity(self.instructions.len());
        for instruction in self.instructions.iter() {
            let of = |register: Register| nodes[usize::from(register)];
            let operands = match *instruction {
                Instruction::Input(_)
                | Instruction::Integer(_)
                | Instruction::Scalar(_)
                | Instruction::Constant(_)
                | Instruction::IntegerConstant(_) => 0,
                Instruction::Unary(_, x) => of(x),
                Instruction::Binary(_, x, y) => of(x).saturating_add(of(y)),
                Instruction::Select(condition, x, y) => {
                    of(condition).saturating_add(of(x)).saturating_add(of(y))
                }
            };
            nodes.push(operands.saturating_add(1));
        }
        let of_results = self.results.iter().map(|&it| nodes[usize::from(it)]);
        of_results.fold(0, u64::saturating_add)
    }

    fn expression(&self, register: Register) -> String {
        self.text(register, &|register| self.expression(register))
    }

    /// Returns the text of an instruction, given those of the registers that it reads.
    fn text(&self, register: Register, of: &dyn Fn(Register) -> String) -> String {
        match self.instructions[usize::from(register)] {
            Instruction::Input(input) | Instruction::Integer(input) => format!("x{input}"),
            Instruction::Scalar(scalar) => format!("s{scalar}"),
            Instruction::Constant(value) => format!("{value}"),
            Instruction::IntegerConstant(value) => format!("{value}"),
            Instruction::Unary(function, x) => format!("{}({})", function.name(), of(x)),
            Instruction::Binary(function, x, y) => {
                format!("{}({}, {})", function.name(), of(x), of(y))
            }
            Instruction::Select(condition, x, y) => {
                format!("select({}, {}, {})", of(condition), of(x), of(y))
            }
        }
    }
}

/// The text form: the results as expressions over the inputs `x0`, `x1`, .. and the run-time
/// scalars `s0`, `s1`, .. If expressions share so much that they would be long, each register has
/// an expression of its own: `r2 = add(r1, r1)`.
impl fmt::Display for ScalarProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.n_nodes() > MAX_NODES {
            let of = |register: Register| format!("r{register}");
            for register in 0..self.instructions.len() {
                let register = Register::try_from(register).map_err(|_| fmt::Error)?;
                write!(f, "r{register} = {}; ", self.text(register, &of))?;
            }
            let results: Vec<String> = self.results.iter().map(|&it| of(it)).collect();
            return f.write_str(&results.join(", "));
        }
        let results: Vec<String> = self.results.iter().map(|&it| self.expression(it)).collect();
        f.write_str(&results.join(", "))
    }
}

macro_rules! functions {
    ($(#[$doc:meta])* $kind:ident { $($(#[$note:meta])* $function:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $kind { $($(#[$note])* $function,)* }

        impl $kind {
            /// All functions, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$function,)*];

            /// Returns the name in the text form.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$function => $name,)* }
            }
        }
    };
}

functions! {
    /// Functions of one number.
    Unary {
        /// `-x`
        Negate = "neg",
        /// `max(x, 0)`; NaN stays NaN
        Relu = "relu",
        /// `e^x`
        Exp = "exp",
        /// The natural logarithm.
        Log = "log",
        /// The square root.
        Sqrt = "sqrt",
        /// The hyperbolic tangent.
        Tanh = "tanh",
        /// `1 / (1 + e^-x)`
        Sigmoid = "sigmoid",
        /// The error function.
        Erf = "erf",
        /// `e^x - 1`, exact near 0
        Expm1 = "expm1",
        /// `log(1 + x)`, exact near 0
        Log1p = "log1p",
        /// The sine.
        Sin = "sin",
        /// The cosine.
        Cos = "cos",
        /// The largest integer that is not above `x`.
        Floor = "floor",
        /// The nearest integer; halves go to the even one.
        Round = "round",
        /// `x`, through which no gradient flows.
        Detach = "detach",
        /// An integer as a number.
        Float = "float",
    }
}

functions! {
    /// Functions of two numbers.
    Binary {
        /// `x + y`
        Add = "add",
        /// `x - y`
        Subtract = "sub",
        /// `x * y`
        Multiply = "mul",
        /// `x / y`
        Divide = "div",
        /// The largest integer that is not above the exact quotient, before it is rounded.
        FloorDivide = "floor_divide",
        /// The exact `x - y floor(x / y)`, rounded. Its sign is that of `y`; it is `x` of an
        /// infinite `y` of the same sign.
        Remainder = "remainder",
        /// The larger of the two.
        Maximum = "maximum",
        /// `x^y`
        Power = "pow",
        /// 1 where `x == y`, else 0.
        Equal = "eq",
        /// 1 where `x > y`, else 0.
        Greater = "gt",
        /// 1 where `x >= y`, else 0.
        GreaterOrEqual = "ge",
        /// 1 where two integers are equal, else 0.
        EqualIntegers = "eq.i32",
        /// 1 where the first of two integers is greater, else 0.
        GreaterInteger = "gt.i32",
        /// The sum of two integers, modulo 2^32.
        AddIntegers = "add.i32",
        /// The difference of two integers, modulo 2^32.
        SubtractIntegers = "sub.i32",
        /// The product of two integers, modulo 2^32.
        MultiplyIntegers = "mul.i32",
        /// The largest integer that is not above the quotient of two integers; 0 if the divisor
        /// is 0.
        FloorDivideIntegers = "floor_divide.i32",
        /// `x` less its quotient in [`Self::FloorDivideIntegers`] times `y`.
        RemainderOfIntegers = "remainder.i32",
        /// A pseudorandom number in `[0, 1)` of 24 bits: a hash of the bits of `x` and `y`.
        Noise = "noise",
    }
}

impl Binary {
    /// Returns whether the result is an integer.
    #[must_use]
    pub const fn gives_integers(self) -> bool {
        match self {
            Self::AddIntegers
            | Self::SubtractIntegers
            | Self::MultiplyIntegers
            | Self::FloorDivideIntegers
            | Self::RemainderOfIntegers => true,
            Self::Add
            | Self::Subtract
            | Self::Multiply
            | Self::Divide
            | Self::FloorDivide
            | Self::Remainder
            | Self::Maximum
            | Self::Power
            | Self::Equal
            | Self::Greater
            | Self::GreaterOrEqual
            | Self::EqualIntegers
            | Self::GreaterInteger
            | Self::Noise => false,
        }
    }

    /// Returns whether the operands are integers.
    #[must_use]
    pub const fn takes_integers(self) -> bool {
        self.gives_integers() || matches!(self, Self::EqualIntegers | Self::GreaterInteger)
    }
}

/// Returns the value of [`Binary::FloorDivideIntegers`].
#[must_use]
#[inline(always)]
pub const fn floor_divide(x: i32, y: i32) -> i32 {
    if y == 0 {
        return 0;
    }
    let (quotient, rest) = (x.wrapping_div(y), x.wrapping_rem(y));
    if rest != 0 && (rest < 0) != (y < 0) { quotient - 1 } else { quotient }
}

/// Returns the value of [`Binary::RemainderOfIntegers`], whose sign is that of the divisor.
#[must_use]
#[inline(always)]
pub const fn remainder(x: i32, y: i32) -> i32 {
    x.wrapping_sub(floor_divide(x, y).wrapping_mul(y))
}

/// Returns the value of [`Binary::FloorDivide`], an infinity or NaN if the divisor is 0, given the
/// exact remainder of the division that truncates. Of numbers of single precision it is exact
/// before it is rounded to them.
#[must_use]
#[inline(always)]
pub fn floor_of_quotient(x: f64, y: f64, rest: f64) -> f64 {
    // The quotient of a multiple of `y` is an integer but for rounding.
    let quotient = ((x - rest) / y).round() - if is_shifted(rest, y) { 1.0 } else { 0.0 };
    // Zeros have the sign of the quotient.
    if quotient == 0.0 || y == 0.0 { (x / y).floor() } else { quotient }
}

/// Returns the value of [`Binary::Remainder`], given the remainder of the division that truncates.
#[must_use]
#[inline(always)]
pub fn remainder_by_floor(rest: f64, y: f64) -> f64 {
    if is_shifted(rest, y) { rest + y } else { rest }
}

/// Returns whether the sign of a truncated division's remainder is not the divisor's.
#[inline(always)]
fn is_shifted(rest: f64, divisor: f64) -> bool {
    rest != 0.0 && (rest < 0.0) != (divisor < 0.0)
}

/// Returns the value of [`Binary::Noise`]: the mixing steps of `MurmurHash3` over the bits of both
/// numbers. Source: Appleby 2011.
#[must_use]
#[inline(always)]
pub const fn noise(x: f32, y: f32) -> f32 {
    let block = y.to_bits().wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let state = (mixed(x.to_bits()) ^ block).rotate_left(13);
    let bits = mixed(state.wrapping_mul(5).wrapping_add(0xe654_6b64));
    (bits >> 8) as f32 / (1_u32 << 24) as f32
}

/// Applies a bijection of words in which each bit depends on all others.
#[inline(always)]
const fn mixed(word: u32) -> u32 {
    let word = (word ^ word >> 16).wrapping_mul(0x85eb_ca6b);
    let word = (word ^ word >> 13).wrapping_mul(0xc2b2_ae35);
    word ^ word >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_of_special_numbers_is_that_of_pytorch() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        // x, y, then the floor of the quotient and the remainder, with the signs of zeros.
        for (x, y, quotient, rest) in [
            (-7.0, 2.0, -4.0, 1.0),
            (7.0, -2.0, -4.0, -1.0),
            (-6.0, 2.0, -3.0, -0.0),
            (1.0, 3.0, 0.0, 1.0),
            (-1.0, -3.0, 0.0, -1.0),
            (-0.0, 3.0, -0.0, -0.0),
            (0.0, -3.0, -0.0, 0.0),
            (-1e-300, 1e300, -1.0, 1e300),
            (5.0, inf, 0.0, 5.0),
            (-5.0, inf, -1.0, inf),
            (inf, 2.0, nan, nan),
            (1.0, 0.0, inf, nan),
            (1.0, -0.0, -inf, nan),
            (0.0, 0.0, nan, nan),
            (nan, 1.0, nan, nan),
        ] {
            let found = [Binary::FloorDivide, Binary::Remainder].map(|it| it.evaluate(x, y));
            for (found, expected) in found.into_iter().zip([quotient, rest]) {
                let is_same = found.to_bits() == expected.to_bits();
                assert!(is_same || found.is_nan() && expected.is_nan(), "{x} {y}: {found}");
            }
        }
    }

    #[test]
    fn noise_is_uniform_along_rows_and_columns() {
        let n = 1 << 16;
        for stream in [noise(0.25, 7.0), 0.0] {
            let along_rows = |it: u32| noise(noise(stream, 3.0), it as f32);
            let along_columns = |it: u32| noise(noise(stream, it as f32), 3.0);
            for values in [&along_rows as &dyn Fn(u32) -> f32, &along_columns] {
                let mut counts = [0_u32; 16];
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "from 0 to below 16"
                )]
                (0..n).for_each(|it| counts[(values(it) * 16.0) as usize] += 1);
                // 4096 are expected in each bin; the tolerance is six standard deviations.
                assert!(counts.iter().all(|it| it.abs_diff(n / 16) < 6 * 62), "{counts:?}");
            }
        }
    }
}
