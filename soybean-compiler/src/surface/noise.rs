//! Random tensors, by numbers that depend on the step and on an element's index in the whole
//! tensor, so that they are the same in every tiling.

use std::f64::consts::TAU;

use soybean_plan::{Binary, Mode, Register, RunScalar, Shape, Unary};

use super::{Arguments, Row, SampleArgument, map};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::iota::Iota,
    scalar::{self, ScalarBuilder},
    signature::{FactorId, factor_id},
    value::Value,
};

const SAMPLES: &[&[SampleArgument]] = &[
    &[SampleArgument::tensor(&[4, 6])],
    &[SampleArgument::tensor(&[2, 3, 1, 5])],
    &[SampleArgument::Labels { shape: &[7], n_classes: 3 }],
];

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "rand_like",
        doc: "In training independent numbers uniform from 0 to below 1, as many as the input has; in evaluation their mean, 0.5. No gradient flows through it.",
        arguments: &["input"],
        build: |builder, arguments| random_like(builder, arguments, 0.5, |_, state| state),
        samples: SAMPLES,
    },
    Row {
        name: "randn_like",
        doc: "In training independent standard normal numbers, as many as the input has; in evaluation their mean, 0. No gradient flows through it.",
        arguments: &["input"],
        build: |builder, arguments| random_like(builder, arguments, 0.0, normal),
        samples: SAMPLES,
    },
];

/// A number of the state of each element in training, and the mean of these numbers in evaluation.
fn random_like(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    mean: f64,
    number: impl FnOnce(&mut ScalarBuilder, Register) -> Register,
) -> Result<Argument, CallDiagnostic> {
    let shape = builder.shape(arguments.any_tensor(0)?);
    if builder.mode() == Mode::Inference {
        return Ok(Argument::Tensor(map(builder, shape, &[], &scalar::constant(mean))));
    }
    let [train, evaluate] =
        [1.0, 0.0].map(|it| map(builder, Shape::default(), &[], &scalar::constant(it)));
    let is_training = builder.by_phase(train, evaluate);
    let mut operands = vec![(is_training, Vec::new())];
    let mut it = ScalarBuilder::default();
    let is_training = it.input(0);
    let state = state(builder, &mut it, &mut operands, shape);
    let (random, mean) = (number(&mut it, state), it.constant(mean));
    let result = it.select(is_training, random, mean);
    Ok(Argument::Tensor(map(builder, shape, &operands, &it.finish(result))))
}

/// Returns a random number in `[0, 1)` of each element `[i, j, ..]`: noise(noise(noise(number of
/// the step, number of the call), i), j) .. It adds the indices to the operands.
pub(super) fn state(
    builder: &mut Builder,
    it: &mut ScalarBuilder,
    operands: &mut Vec<(Value, Vec<FactorId>)>,
    shape: Shape,
) -> Register {
    let step = it.scalar(scalar::number(&mut builder.scalars, RunScalar::Noise));
    let own_number = it.constant(f64::from(builder.n_noises));
    let mut state = it.binary(Binary::Noise, step, own_number);
    builder.n_noises += 1;
    for (dim, &extent) in shape.iter().enumerate() {
        let index = it.float(factor_id(operands.len()));
        state = it.binary(Binary::Noise, state, index);
        operands.push((builder.graph.add(Iota::new(extent).into(), &[]), vec![factor_id(dim)]));
    }
    state
}

// sqrt(-2 log(1 - u)) cos(2 pi v) for the uniform numbers u and v. Source: Box & Muller 1958.
fn normal(it: &mut ScalarBuilder, state: Register) -> Register {
    let [u, v] = [0.0, 1.0].map(|number| {
        let number = it.constant(number);
        it.binary(Binary::Noise, state, number)
    });
    let one = it.constant(1.0);
    let share = it.sub(one, u);
    let log = it.unary(Unary::Log, share);
    let square = it.scale(log, -2.0);
    let (radius, angle) = (it.unary(Unary::Sqrt, square), it.scale(v, TAU));
    let cosine = it.unary(Unary::Cos, angle);
    it.mul(radius, cosine)
}
