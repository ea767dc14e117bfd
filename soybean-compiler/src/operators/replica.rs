//! `share`: a replica of a tensor, for some of its readers; costs nothing in the tensor's own
//! tiling.

use std::fmt;

use soybean_plan::{Combine, DType, Kernel, Shape};

use crate::{
    operator::{GradientBuilder, OperatorCall, Rounding, Rules},
    operators::elementwise::all_dims,
    signature::Signature,
    value::Value,
};

/// The operand itself, in a tiling of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica;

impl Rules for Replica {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let dims = all_dims(&operands[0]);
        Signature::plain(operands[0].to_vec(), std::slice::from_ref(&dims), &dims, Combine::Sum)
    }

    // d share(x) = x
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        _builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        vec![Some(call.gradient)]
    }

    fn keeps_zeros(&self) -> bool {
        true
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

    fn is_alias(&self) -> bool {
        true
    }

    fn is_replica(&self) -> bool {
        true
    }
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("share")
    }
}
