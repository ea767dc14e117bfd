//! `permute`: the dims in another order.

use std::fmt;

use soybean_plan::{Combine, DType, Kernel, Permutation, Shape, Strides};

use crate::{
    operator::{GradientBuilder, OperatorCall, Rounding, Rules},
    signature::{Signature, factor_id},
    value::Value,
};

/// Dim `d` of the result is dim `order[d]` of the operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permute {
    /// The operand's dims, in the result's order.
    pub order: Vec<usize>,
}

impl Rules for Permute {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let extents = self.order.iter().map(|&dim| operands[0][dim]).collect();
        let position =
            |dim| self.order.iter().position(|&it| it == dim).expect("the order has every dim");
        let operand = (0..self.order.len()).map(|dim| factor_id(position(dim))).collect();
        let result: Vec<_> = (0..self.order.len()).map(factor_id).collect();
        Signature::plain(extents, &[operand], &result, Combine::Sum).additive()
    }

    // d permute(x) = permute back
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        let mut order = vec![0; self.order.len()];
        for (result, &operand) in self.order.iter().enumerate() {
            order[operand] = result;
        }
        vec![Some(builder.add(Self { order }.into(), &[call.gradient]))]
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

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let dense = operands[0].dense_strides();
        let input = Strides::new(&self.order.iter().map(|&dim| dense.0[dim]).collect::<Vec<_>>());
        Some(Permutation { extents: *result, input }.into())
    }

    fn dtype(&self, operands: &[DType]) -> DType {
        operands[0]
    }
}

impl fmt::Display for Permute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "permute {:?}", self.order)
    }
}
