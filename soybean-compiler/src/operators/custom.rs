//! `custom`: an operator that a user defines, and the gradient of its result until it is known.

use std::{borrow::Cow, fmt};

use soybean_plan::{Combine, Custom as CustomKernel, HostFunction, IndexNotation, Kernel, Shape};

use crate::{
    operator::{GradientBuilder, OperatorCall, Rounding, Rules},
    signature::{Dim, FactorId, Signature, factor_id},
    value::Value,
};

/// An operator that a user defines. Its gradient is a function of the user, which
/// [`crate::differentiate()`] inserts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Custom {
    /// The name of the operator.
    pub name: String,
    /// The dims of operands and result.
    pub notation: IndexNotation,
    /// The names of the operands.
    pub names: Vec<String>,
    /// The symbol of the function for the CPU.
    pub symbol: String,
    /// The body of a CUDA C function of one element of the result.
    pub cuda: Option<String>,
    /// The product of the extents of the dims that are never split.
    pub n_whole: u64,
}

impl Rules for Custom {
    // A factor for each letter that may be split.
    fn signature(&self, operands: &[Shape]) -> Signature {
        let shapes: Vec<&[usize]> = operands.iter().map(|it| &it[..]).collect();
        let letters = self.notation.letters();
        let split: Vec<char> =
            letters.into_iter().filter(|it| IndexNotation::is_split(*it)).collect();
        let extent = |letter: char| self.notation.extent(letter, &shapes);
        let factor = |letter: char| -> Option<FactorId> {
            split.iter().position(|it| *it == letter).map(factor_id)
        };
        let dims = |letters: &[char]| -> Vec<Dim> {
            letters.iter().map(|&it| Dim::new(extent(it), factor(it))).collect()
        };
        Signature::new(
            split.iter().map(|&it| extent(it)).collect(),
            self.notation.operands().iter().map(|it| dims(it)).collect(),
            dims(self.notation.result()),
            Combine::Sum,
        )
    }

    // Differentiation takes the user's function instead, if there is one.
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        _builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        vec![None; call.operands.len()]
    }

    fn flops_per_point(&self) -> u64 {
        self.n_whole.saturating_mul(2)
    }

    fn rounding(&self) -> Rounding {
        Rounding::Exact
    }

    fn pads_reduced_dims(&self) -> bool {
        false
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let text = |it: &String| Cow::Owned(it.clone());
        let kernel = CustomKernel {
            name: text(&self.name),
            notation: self.notation.to_string().into(),
            names: self.names.iter().map(text).collect(),
            function: HostFunction { symbol: text(&self.symbol), function: None },
            cuda: self.cuda.as_ref().map(text),
            operands: operands.to_vec().into(),
            result: *result,
        };
        Some(kernel.into())
    }
}

impl fmt::Display for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "custom {}", self.name)
    }
}

/// The gradient with respect to the operand, which stands for one that is not known yet. No other
/// operator than those of a user's gradient function reads it, and differentiation replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FutureGradient;

impl Rules for FutureGradient {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let dims: Vec<FactorId> = (0..operands[0].len()).map(factor_id).collect();
        Signature::plain(operands[0].to_vec(), std::slice::from_ref(&dims), &dims, Combine::Sum)
    }

    fn gradient(
        &self,
        _call: &OperatorCall<'_>,
        _builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        vec![None]
    }

    fn flops_per_point(&self) -> u64 {
        0
    }

    fn rounding(&self) -> Rounding {
        Rounding::Exact
    }

    fn kernel(&self, _operands: &[Shape], _result: &Shape) -> Option<Kernel> {
        None
    }
}

impl fmt::Display for FutureGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("future-gradient")
    }
}
