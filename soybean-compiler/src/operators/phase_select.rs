//! `by-phase`: one tensor in training and another in evaluation, for models that differ between the
//! two; costs nothing.

use std::fmt;

use soybean_plan::{Combine, DType, Kernel, Shape};

use crate::{
    operator::{ChannelsLast, GradientBuilder, OperatorCall, Phase, Rounding, Rules},
    operators::elementwise::all_dims,
    signature::Signature,
    value::Value,
};

/// The first operand in a training step, the second in an evaluation; both of the same shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseSelect;

impl PhaseSelect {
    /// Returns the position of the operand that is the result in this phase.
    #[must_use]
    pub const fn operand(phase: Phase) -> usize {
        match phase {
            Phase::Train(_) | Phase::Accumulate => 0,
            Phase::Evaluate(_) => 1,
        }
    }
}

impl Rules for PhaseSelect {
    fn signature(&self, operands: &[Shape]) -> Signature {
        let dims = all_dims(&operands[0]);
        Signature::plain(operands[0].to_vec(), &[dims.clone(), dims.clone()], &dims, Combine::Sum)
    }

    // Gradients are those of training.
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        _builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        vec![Some(call.gradient), None]
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

    fn channels_last(&self, operands: &[Shape]) -> Option<ChannelsLast> {
        Some(ChannelsLast::everywhere(self.clone().into(), operands.len()))
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

    fn reads(&self, position: usize, phase: Phase) -> bool {
        position == Self::operand(phase)
    }
}

impl fmt::Display for PhaseSelect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("by-phase")
    }
}
