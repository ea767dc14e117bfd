//! Arithmetic with `NumPy` broadcasting.

use soybean_plan::{Binary, Shape, Unary};

use super::{Arguments, Row, SampleArgument, map, map_one};
use crate::{
    builder::{Argument, Builder},
    fault::Fault,
    graph::Value,
    operators::reshape::Reshape,
    scalar::{self, ScalarBuilder},
    signature::{FactorId, factor_id},
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "add",
        arguments: &["left", "right"],
        build: |builder, arguments| binary(builder, arguments, Binary::Add),
        samples: &[
            &[tensor(&[4, 6]), tensor(&[4, 6])],
            &[tensor(&[4, 6]), tensor(&[6])],
            &[tensor(&[4, 1]), tensor(&[3, 1, 6])],
            &[tensor(&[4, 6]), SampleArgument::Float(0.5)],
        ],
    },
    Row {
        name: "sub",
        arguments: &["left", "right"],
        build: |builder, arguments| binary(builder, arguments, Binary::Subtract),
        samples: &[
            &[tensor(&[4]), tensor(&[6, 4])],
            &[SampleArgument::Integer(1), tensor(&[4, 6])],
        ],
    },
    Row {
        name: "mul",
        arguments: &["left", "right"],
        build: |builder, arguments| binary(builder, arguments, Binary::Multiply),
        samples: &[
            &[tensor(&[4, 6]), tensor(&[4, 1])],
            &[tensor(&[4, 6]), SampleArgument::Integer(3)],
        ],
    },
    Row {
        name: "div",
        arguments: &["left", "right"],
        build: |builder, arguments| binary(builder, arguments, Binary::Divide),
        samples: &[
            &[tensor(&[4, 6]), SampleArgument::positive(&[6])],
            &[SampleArgument::Float(2.0), SampleArgument::positive(&[4, 6])],
        ],
    },
    Row {
        name: "neg",
        arguments: &["input"],
        build: |builder, arguments| {
            let value = arguments.tensor(builder, 0)?;
            Ok(Argument::Tensor(map_one(builder, value, &scalar::unary(Unary::Negate))))
        },
        samples: &[&[tensor(&[4, 6])]],
    },
    Row { name: "powi", arguments: &["input", "exponent"], build: powi, samples: POWI_SAMPLES },
];

const POWI_SAMPLES: &[&[SampleArgument]] = &[
    &[tensor(&[4, 6]), SampleArgument::Integer(3)],
    &[SampleArgument::positive(&[4, 6]), SampleArgument::Integer(-2)],
    &[tensor(&[4, 6]), SampleArgument::Integer(0)],
];

fn binary(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    function: Binary,
) -> Result<Argument, Fault> {
    let result = match (arguments.get(0).as_number(), arguments.get(1).as_number()) {
        (_, Some(number)) => {
            let value = arguments.tensor(builder, 0)?;
            with_number(builder, value, |it, x| {
                let number = it.constant(number);
                it.binary(function, x, number)
            })
        }
        (Some(number), None) => {
            let value = arguments.tensor(builder, 1)?;
            with_number(builder, value, |it, x| {
                let number = it.constant(number);
                it.binary(function, number, x)
            })
        }
        (None, None) => {
            let (left, right) = (arguments.tensor(builder, 0)?, arguments.tensor(builder, 1)?);
            broadcast(builder, arguments, left, right, &scalar::binary(function))?
        }
    };
    Ok(Argument::Tensor(result))
}

fn with_number(
    builder: &mut Builder,
    value: Value,
    program: impl Fn(&mut ScalarBuilder, u16) -> u16,
) -> Value {
    let mut scalar = ScalarBuilder::default();
    let x = scalar.input(0);
    let result = program(&mut scalar, x);
    map_one(builder, value, &scalar.finish(result))
}

/// A map of two tensors, broadcast against each other: aligned at the last dim; dims that are missing or 1 are repeated.
pub(super) fn broadcast(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    left: Value,
    right: Value,
    program: &soybean_plan::ScalarProgram,
) -> Result<Value, Fault> {
    let (of_left, of_right) = (builder.shape(left), builder.shape(right));
    let Some(extents) = broadcast_shape(&of_left, &of_right) else {
        let message = format!("shapes {of_left} and {of_right} do not broadcast");
        let help = "aligned at the last dim, each pair of extents must be equal, or one of them 1 or missing";
        return Err(arguments.fault(1, message).with_help(help));
    };
    let operands = [squeezed(builder, left, &extents), squeezed(builder, right, &extents)];
    Ok(map(builder, extents, &operands, program))
}

fn broadcast_shape(left: &Shape, right: &Shape) -> Option<Shape> {
    let rank = left.len().max(right.len());
    let extent = |shape: &Shape, dim: usize| {
        (dim + shape.len()).checked_sub(rank).map_or(1, |dim| shape[dim])
    };
    let both = |dim| match (extent(left, dim), extent(right, dim)) {
        (x, y) if x == y => Some(x),
        (x, 1) => Some(x),
        (1, y) => Some(y),
        _ => None,
    };
    (0..rank).map(both).collect()
}

/// A tensor without its dims that are repeated in `extents`, and the dims of `extents` that it has.
fn squeezed(builder: &mut Builder, value: Value, extents: &Shape) -> (Value, Vec<FactorId>) {
    let shape = builder.shape(value);
    let skipped = extents.len() - shape.len();
    let kept: Vec<usize> =
        (0..shape.len()).filter(|&dim| shape[dim] == extents[dim + skipped]).collect();
    let ids = kept.iter().map(|&dim| factor_id(dim + skipped)).collect();
    if kept.len() == shape.len() {
        return (value, ids);
    }
    let shape = kept.iter().map(|&dim| shape[dim]).collect();
    (builder.graph.add(Reshape { shape }.into(), &[value]), ids)
}

fn powi(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let (value, exponent) = (arguments.tensor(builder, 0)?, arguments.integer(1)?);
    if exponent.abs() > 64 {
        return Err(arguments
            .fault(1, format!("the exponent must lie between -64 and 64, found {exponent}")));
    }
    let result = with_number(builder, value, |it, x| {
        let one = it.constant(1.0);
        let power = (0..exponent.unsigned_abs()).fold(one, |power, _| it.mul(power, x));
        if exponent < 0 { it.div(one, power) } else { power }
    });
    Ok(Argument::Tensor(result))
}
