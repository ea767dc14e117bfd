//! `share`: a working copy of a tensor, for some of its readers; costs nothing where it lies as the tensor does.

use std::fmt;

use soybean_plan::{Combine, DType, Kernel, Shape};

use crate::{
    gradient::Tape,
    graph::Value,
    operator::{Call, Rounding, Rules},
    operators::elementwise::all_dims,
    signature::Signature,
};

/// The operand itself, in a tiling of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share;

impl Rules for Share {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let dims = all_dims(&operands[0]);
        Signature::plain(operands[0].to_vec(), std::slice::from_ref(&dims), &dims, Combine::Sum)
    }

    // d share(x) = x
    fn gradient(&self, call: &Call<'_>, _tape: &mut Tape<'_>) -> Vec<Option<Value>> {
        vec![Some(call.gradient)]
    }

    fn flops_per_point(&self) -> u64 {
        0
    }

    fn rounding(&self) -> Rounding {
        Rounding::Alike
    }

    fn kernel(&self, _operands: &[Shape], _result: &Shape) -> Option<Kernel> {
        None
    }

    fn dtype(&self, operands: &[DType]) -> DType {
        operands[0]
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("share")
    }
}
