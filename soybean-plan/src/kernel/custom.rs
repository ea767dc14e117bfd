//! Operators that users define, by a function for the CPU and text for GPUs.

use std::{borrow::Cow, fmt};

use super::KernelDescriptor;
use crate::{
    ConstExpression, IndexNotation, KernelCategory, Shape, WorkKind, descriptor::descriptor,
};

descriptor! {
    /// An operator that a user defines.
    ///
    /// Reads the operands, all of them dense and row-major, and writes the result so.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Custom {
        /// The name of the operator.
        pub name: Cow<'static, str>,
        /// The operator in index notation.
        pub notation: Cow<'static, str>,
        /// The names of the operands.
        pub names: Cow<'static, [Cow<'static, str>]>,
        /// The function for the CPU.
        pub function: HostFunction,
        /// The body of a CUDA C function that returns one element of the result.
        pub cuda: Option<Cow<'static, str>>,
        /// The shapes of the operands.
        pub operands: Cow<'static, [Shape]>,
        /// The shape of the result.
        pub result: Shape,
    }
}

/// A tensor that a [`CustomFunction`] reads.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a, F> {
    /// The extents of the dims.
    pub shape: &'a [usize],
    /// The elements in row-major order.
    pub data: &'a [F],
}

/// The tensor that a [`CustomFunction`] writes.
#[derive(Debug)]
pub struct TensorMut<'a, F> {
    /// The extents of the dims.
    pub shape: &'a [usize],
    /// The elements in row-major order. They are not initialized: the function writes all of them.
    pub data: &'a mut [F],
}

/// The function of a [`Custom`] operator on the CPU, of its operands and its result.
pub type CustomFunction<F> = fn(&[TensorRef<'_, F>], TensorMut<'_, F>);

/// A function of the program, which only the program itself can call.
#[derive(Clone, Debug)]
pub struct HostFunction {
    /// The symbol by which the linker finds the function.
    pub symbol: Cow<'static, str>,
    /// The function; `None` where plans are made.
    pub function: Option<CustomFunction<f32>>,
}

// Equal symbols are one function. Addresses of functions say less.
impl PartialEq for HostFunction {
    fn eq(&self, other: &Self) -> bool {
        self.symbol == other.symbol
    }
}

impl Eq for HostFunction {}

impl ConstExpression for HostFunction {
    fn write_expression(&self, text: &mut String) {
        let symbol = &self.symbol;
        text.push_str(&format!(
            "HostFunction {{ symbol: Cow::Borrowed({symbol:?}), function: Some({{ \
             unsafe extern \"Rust\" {{ \
             safe fn {symbol}(operands: &[TensorRef<'_, f32>], result: TensorMut<'_, f32>); \
             }} {symbol} }}) }}"
        ));
    }
}

impl Custom {
    /// Returns the parsed notation.
    ///
    /// # Panics
    /// If the notation is not one.
    #[must_use]
    pub fn index_notation(&self) -> IndexNotation {
        IndexNotation::parse(&self.notation).expect("the compiler has parsed the notation")
    }

    /// Returns the product of the extents of all letters.
    #[must_use]
    pub fn n_points(&self) -> u64 {
        let notation = self.index_notation();
        let shapes: Vec<&[usize]> = self.operands.iter().map(|it| &it[..]).collect();
        let extents = notation.letters().into_iter().map(|it| notation.extent(it, &shapes) as u64);
        extents.fold(1, u64::saturating_mul)
    }
}

impl KernelDescriptor for Custom {
    fn name(&self) -> &'static str {
        "custom"
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Custom
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Other
    }

    // A multiplication and an addition for each point, as in a product of matrices. Only the user
    // knows more.
    fn n_operations(&self) -> u64 {
        self.n_points().saturating_mul(2)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the function computes in `f32`")]
    fn evaluate(&self, inputs: &[&[f64]], _scalars: &[f64]) -> Vec<Vec<f64>> {
        let function = self.function.function.expect("evaluated programs have their functions");
        let narrow = |it: &&[f64]| it.iter().map(|it| *it as f32).collect::<Vec<f32>>();
        let inputs: Vec<Vec<f32>> = inputs.iter().map(narrow).collect();
        let operands: Vec<TensorRef<'_, f32>> = (self.operands.iter().zip(&inputs))
            .map(|(shape, data)| TensorRef { shape, data })
            .collect();
        let mut data = vec![0.0; self.result.n_elements()];
        function(&operands, TensorMut { shape: &self.result, data: &mut data });
        vec![data.into_iter().map(f64::from).collect()]
    }
}

impl fmt::Display for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operands: Vec<String> = self.operands.iter().map(ToString::to_string).collect();
        let Self { name, notation, result, .. } = self;
        write!(f, "custom {name} {notation} {} -> {result}", operands.join(" "))
    }
}
