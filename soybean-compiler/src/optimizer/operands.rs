//! The registers that an optimizer's scalar programs read.

use soybean_plan::{Register, RunScalar, Shape};

use crate::scalar::ScalarBuilder;

/// The operands of an update, and the scalar program that is being built over them.
pub(crate) struct Operands<'a> {
    pub(crate) builder: &'a mut ScalarBuilder,
    /// The parameter's shape.
    pub(crate) shape: Shape,
    pub(crate) learning_rate: Register,
    pub(crate) parameter: Register,
    /// The mean gradient of the steps that share the update, clipped.
    pub(crate) gradient: Register,
    /// The values of states and statistics, by name.
    pub(super) tensors: Vec<(&'static str, Register)>,
    /// The numbers of the method's run-time scalars.
    pub(super) scalars: &'a [(RunScalar, u8)],
}

impl Operands<'_> {
    /// Returns the value of a state or statistic of the method.
    pub(crate) fn value(&self, name: &str) -> Register {
        let value = self.tensors.iter().find(|it| it.0 == name);
        value.expect("updates read declared states and statistics").1
    }

    /// Returns a run-time scalar of the method.
    pub(crate) fn scalar(&mut self, scalar: RunScalar) -> Register {
        let number = self.scalars.iter().find(|it| it.0 == scalar);
        self.builder.scalar(number.expect("updates read declared scalars").1)
    }

    /// Adds the L2 penalty to the gradient: g + decay p.
    pub(crate) fn penalized_gradient(&mut self, weight_decay: f64) -> Register {
        if weight_decay == 0.0 {
            return self.gradient;
        }
        let penalty = self.builder.scale(self.parameter, weight_decay);
        self.builder.add(self.gradient, penalty)
    }

    /// Shrinks the parameter by decoupled weight decay: p - rate decay p.
    pub(crate) fn decayed_parameter(&mut self, weight_decay: f64) -> Register {
        if weight_decay == 0.0 {
            return self.parameter;
        }
        let decay = self.builder.scale(self.learning_rate, weight_decay);
        let decrease = self.builder.mul(self.parameter, decay);
        self.builder.sub(self.parameter, decrease)
    }

    /// Updates a moving mean: decay m + (1 - decay) x.
    pub(crate) fn moving_mean(&mut self, mean: Register, value: Register, decay: f64) -> Register {
        moving_mean(self.builder, mean, value, decay)
    }
}

/// Updates a moving mean: decay m + (1 - decay) x.
pub(super) fn moving_mean(
    builder: &mut ScalarBuilder,
    mean: Register,
    value: Register,
    decay: f64,
) -> Register {
    let (kept, new) = (builder.scale(mean, decay), builder.scale(value, 1.0 - decay));
    builder.add(kept, new)
}
