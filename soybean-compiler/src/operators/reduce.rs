//! `sum` and `max`: a map whose values are combined over some dims of its index space.

use std::fmt;

use soybean_plan::{Combine, DType, Kernel, Reduction, ScalarProgram, Shape, Strides};

use crate::{
    operator::{ChannelsLast, GradientBuilder, Operator, OperatorCall, Rounding, Rules},
    operators::elementwise::{Elementwise, all_dims, has_channels, with_channels_last},
    scalar::{self, ScalarBuilder},
    signature::{FactorId, Signature},
    value::Value,
};

/// A reduction. Its factors are the dims of the map's index space.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduce {
    /// The combined values. Users' reductions read a multiple of one operand; fusion adds programs.
    pub map: Elementwise,
    /// The combination.
    pub combine: Combine,
    /// The dims that remain, in increasing order.
    pub kept: Vec<FactorId>,
}

impl Reduce {
    /// Returns the reduction of a tensor of numbers of this shape to the dims in `kept`.
    #[must_use]
    pub fn new(shape: Shape, combine: Combine, kept: Vec<FactorId>) -> Self {
        Self { map: Elementwise::same(shape, 1, scalar::identity()), combine, kept }
    }

    /// Returns the reduction of a tensor of integers in the same way.
    #[must_use]
    pub fn of_integers(shape: Shape, combine: Combine, kept: Vec<FactorId>) -> Self {
        Self { map: Elementwise::same(shape, 1, scalar::integer()), combine, kept }
    }
}

impl Rules for Reduce {
    fn signature(&self, _operands: &[Shape]) -> Signature {
        let (extents, operands) = (self.map.extents.to_vec(), &self.map.operands);
        let signature = Signature::plain(extents, operands, &self.kept, self.combine);
        match self.combine {
            Combine::Sum => signature.linear_in(scalar::linear_inputs(&self.map.program)),
            Combine::Max => signature,
        }
    }

    // d sum(c x) = c gradient, repeated
    // d max(x) = gradient where x is the maximum, shared equally among ties
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        let (shape, space) = (self.map.extents, all_dims(&self.map.extents));
        if self.combine == Combine::Sum {
            let slope = scalar::derivative(&self.map.program, 0, 1)
                .expect("the sum depends on its operand");
            let operands = [space.clone(), space, self.kept.clone()];
            let values = [call.operands[0], call.operands[0], call.gradient];
            return vec![Some(builder.add_elementwise(shape, &operands, slope, &values))];
        }
        let operands = [space.clone(), self.kept.clone()];
        let is_maximum =
            builder.add_elementwise(shape, &operands, equal(), &[call.operands[0], call.result]);
        let n_ties = builder.sum_to(is_maximum, &self.kept);
        let operands = [space, self.kept.clone(), self.kept.clone()];
        let values = [is_maximum, call.gradient, n_ties];
        vec![Some(builder.add_elementwise(shape, &operands, share(), &values))]
    }

    fn resized(&self, factors: &[usize], _result: Shape) -> Option<Operator> {
        let map = Elementwise { extents: Shape::new(factors), ..self.map.clone() };
        Some(Self { map, ..self.clone() }.into())
    }

    fn flops_per_point(&self) -> u64 {
        1 + self.map.flops_per_point()
    }

    fn rounding(&self) -> Rounding {
        Rounding::Exact
    }

    fn channels_last(&self, _operands: &[Shape]) -> Option<ChannelsLast> {
        let map = self.map.with_channels_last()?;
        let kept = with_channels_last(&self.kept, map.extents.len());
        let operator = Self { map, kept: kept.clone(), ..self.clone() }.into();
        let (operands, result) = (self.map.read_channels_last(), has_channels(&self.kept));
        kept.is_sorted().then_some(ChannelsLast { operator, operands, result })
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let mut extents = self.map.extents;
        for (ids, shape) in self.map.operands.iter().zip(operands) {
            for (&id, &extent) in ids.iter().zip(&shape[..]) {
                extents = extents.with(id as usize, extent);
            }
        }
        let dense = result.dense_strides();
        let mut strides = Strides::default();
        for (dim, &id) in self.kept.iter().enumerate() {
            strides.0[id as usize] = dense.0[dim];
            extents = extents.with(id as usize, result[dim]);
        }
        let map = self.map.local(operands, extents);
        Some(Reduction { map, combine: self.combine, result: strides }.into())
    }

    fn dtype(&self, _operands: &[DType]) -> DType {
        if self.map.program.integer_results()[0] { DType::I32 } else { DType::F32 }
    }
}

fn equal() -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let (x, maximum) = (it.input(0), it.input(1));
    let result = it.equal(x, maximum);
    it.finish(result)
}

fn share() -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let (is_maximum, gradient, n_ties) = (it.input(0), it.input(1), it.input(2));
    let shared = it.div(gradient, n_ties);
    let result = it.mul(is_maximum, shared);
    it.finish(result)
}

impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {{{}}}", self.combine.name(), self.map.program)
    }
}
