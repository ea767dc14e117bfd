//! Tensors that are made of numbers alone: functions without operands.

use soybean_plan::Shape;

use super::{Arguments, Row, SampleArgument, layout, map};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::iota::Iota,
    scalar,
};

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "arange",
        doc: "The numbers `0, 1, ..` below `end`.",
        arguments: &["end"],
        build: arange,
        samples: &[&[SampleArgument::Integer(6)], &[SampleArgument::Integer(1)]],
    },
    Row {
        name: "full",
        doc: "A tensor of this shape whose elements are all `value`.",
        arguments: &["shape", "value"],
        build: full,
        samples: &[
            &[SampleArgument::List(&[4, 6]), SampleArgument::Float(0.5)],
            &[SampleArgument::List(&[]), SampleArgument::Integer(3)],
        ],
    },
];

/// The greatest number of elements that single precision can number.
const MAX_END: usize = 1 << 24;

fn arange(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let end = arguments.size(0, 1)?;
    if end > MAX_END {
        return Err(arguments.expected_number(0, &format!("at most {MAX_END}"), end));
    }
    let index = builder.graph.add(Iota::new(end).into(), &[]);
    let operands = [(index, vec![0])];
    Ok(Argument::Tensor(map(builder, Shape::new(&[end]), &operands, &scalar::float())))
}

fn full(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let shape = layout::shape_of(arguments, 0, &arguments.integers(0)?)?;
    let value = arguments.number(1)?;
    Ok(Argument::Tensor(map(builder, shape, &[], &scalar::constant(value))))
}
