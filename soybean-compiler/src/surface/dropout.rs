//! Dropout, by numbers that depend on the step and on an element's index in the whole tensor, so
//! that every tiling drops the same elements.

use soybean_plan::{Binary, Mode, NumberRange, Shape};

use super::{Arguments, Row, SampleArgument, map, noise};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::elementwise::all_dims,
    scalar::ScalarBuilder,
    value::Value,
};

pub(super) const TABLE: &[Row] = &[Row {
    name: "dropout",
    doc: "In training 0 with probability `p`, else divided by `1 - p`; in evaluation the tensor itself.",
    arguments: &["input", "p"],
    build: dropout,
    samples: &[
        &[SampleArgument::tensor(&[4, 6]), SampleArgument::Float(0.5)],
        &[SampleArgument::tensor(&[2, 3, 1, 5]), SampleArgument::Float(0.1)],
        &[SampleArgument::tensor(&[7]), SampleArgument::Integer(0)],
    ],
}];

// 0 with probability p, else x / (1 - p); in evaluation x. Source: Srivastava et al. 2014. An
// element is dropped if its noise is below p.
fn dropout(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let p = arguments.number_in(1, NumberRange::BELOW_ONE)?;
    Ok(Argument::Tensor(dropped(builder, value, p)))
}

/// Returns a tensor of which training drops elements with the probability `p`.
pub(super) fn dropped(builder: &mut Builder, value: Value, p: f64) -> Value {
    if builder.mode() == Mode::Inference {
        return value;
    }
    let shape = builder.shape(value);
    let (train, evaluate) = (constant(builder, p), constant(builder, 0.0));
    let rate = builder.by_phase(train, evaluate);
    let mut operands = vec![(value, all_dims(&shape)), (rate, Vec::new())];
    let mut it = ScalarBuilder::default();
    let (x, rate) = (it.input(0), it.input(1));
    let noise = noise::state(builder, &mut it, &mut operands, shape);
    let (zero, one) = (it.constant(0.0), it.constant(1.0));
    let is_dropped = it.binary(Binary::Greater, rate, noise);
    let share = it.sub(one, rate);
    let scaled = it.div(x, share);
    let result = it.select(is_dropped, zero, scaled);
    map(builder, shape, &operands, &it.finish(result))
}

fn constant(builder: &mut Builder, value: f64) -> Value {
    let mut it = ScalarBuilder::default();
    let constant = it.constant(value);
    map(builder, Shape::default(), &[], &it.finish(constant))
}
