//! Scalar programs: what a fused elementwise kernel computes for one element.

use std::borrow::Cow;

/// The number of the instruction whose value is meant.
pub type Register = u16;

/// Straight-line code over single precision numbers, in which each instruction defines one register.
///
/// Comparisons give 1 or 0. Integer inputs are converted when they are read.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalarProgram {
    /// The instructions; each reads only registers of earlier ones.
    pub instructions: Cow<'static, [Instruction]>,
    /// The registers that are the results, in order.
    pub results: Cow<'static, [Register]>,
}

/// One instruction of a [`ScalarProgram`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instruction {
    /// The element of this input of the kernel.
    Input(u8),
    /// The run-time scalar with this number in the program's list.
    Scalar(u8),
    /// A constant, rounded to the precision of the kernel.
    Constant(f64),
    /// A function of one register.
    Unary(Unary, Register),
    /// A function of two registers.
    Binary(Binary, Register, Register),
    /// The second register where the first is not 0, else the third.
    Select(Register, Register, Register),
}

macro_rules! functions {
    ($(#[$doc:meta])* $kind:ident { $($(#[$note:meta])* $function:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $kind { $($(#[$note])* $function,)* }

        impl $kind {
            /// All functions, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$function,)*];

            /// The name in the text form.
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
        /// `x`, through which no gradient flows.
        Detach = "detach",
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
        /// The larger of the two.
        Maximum = "maximum",
        /// 1 where `x == y`, else 0.
        Equal = "eq",
        /// 1 where `x > y`, else 0.
        Greater = "gt",
    }
}
