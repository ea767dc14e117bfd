//! Parts of tensors.

use super::{Arguments, Row, SampleArgument};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::pad::Pad,
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const fn integer(value: i64) -> SampleArgument {
    SampleArgument::Integer(value)
}

const fn list(values: &'static [i64]) -> SampleArgument {
    SampleArgument::List(values)
}

const LABELS: SampleArgument = SampleArgument::Labels { shape: &[2, 5], n_classes: 7 };

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "slice",
        doc: "The elements `start..end` along a dim; negative numbers count from its end.",
        arguments: &["input", "dim", "start", "end"],
        build: slice,
        samples: &[
            &[tensor(&[4, 6]), integer(1), integer(1), integer(4)],
            &[tensor(&[5, 2, 4]), integer(-3), integer(0), integer(1)],
            &[tensor(&[4, 6]), integer(0), integer(0), integer(4)],
            &[LABELS, integer(1), integer(2), integer(4)],
            &[tensor(&[4, 6]), integer(1), integer(-3), integer(6)],
            &[tensor(&[4, 6]), integer(0), integer(1), integer(-1)],
        ],
    },
    Row {
        name: "split",
        doc: "Parts of these sizes along a dim, an array of tensors.",
        arguments: &["input", "sizes", "dim"],
        build: split,
        samples: &[
            &[tensor(&[4, 7]), list(&[3, 4]), integer(1)],
            &[tensor(&[6, 2, 4]), list(&[1, 2, 3]), integer(0)],
            &[tensor(&[4, 6]), list(&[6]), integer(-1)],
            &[tensor(&[4, 12]), list(&[4, 4, 4]), integer(1)],
            &[LABELS, list(&[4, 1]), integer(1)],
        ],
    },
    Row {
        name: "chunk",
        doc: "So many parts along a dim, an array of tensors: equal ones, and a last one that may be smaller.",
        arguments: &["input", "chunks", "dim"],
        build: chunk,
        samples: &[
            &[tensor(&[4, 6]), integer(3), integer(-1)],
            &[tensor(&[7, 2]), integer(2), integer(0)],
            &[tensor(&[4, 6]), integer(1), integer(0)],
        ],
    },
];

fn slice(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.any_tensor(0)?;
    let shape = builder.shape(value);
    let dim = arguments.dim(1, shape.len())?;
    let (start, end) = (arguments.integer(2)?, arguments.integer(3)?);
    let extent = i64::try_from(shape[dim]).expect("extents are far below 2^63");
    let from_start = |at: i64| usize::try_from(if at < 0 { at + extent } else { at }).ok();
    let range = from_start(start).zip(from_start(end));
    let Some((start, end)) = range.filter(|&(start, end)| start < end && end <= shape[dim]) else {
        let message =
            format!("{start}..{end} is not a part of dim {dim}, which has {} elements", shape[dim]);
        let is_start = from_start(start).is_none_or(|it| it >= shape[dim]);
        let position = if is_start { 2 } else { 3 };
        return Err(arguments.fault(position, message).with_help("a part has at least 1 element"));
    };
    Ok(Argument::Tensor(part(builder, value, dim, start, end - start)))
}

fn split(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.any_tensor(0)?;
    let shape = builder.shape(value);
    let dim = arguments.dim(2, shape.len())?;
    let given = arguments.integers(1)?;
    let size = |size: &i64| usize::try_from(*size).ok().filter(|&it| it > 0);
    let Some(sizes) = given.iter().map(size).collect::<Option<Vec<usize>>>() else {
        return Err(arguments.fault(1, format!("sizes must be positive, found {given:?}")));
    };
    let total: usize = sizes.iter().sum();
    if total != shape[dim] {
        let message =
            format!("sizes {sizes:?} add up to {total}, but dim {dim} has {} elements", shape[dim]);
        return Err(arguments.fault(1, message));
    }
    Ok(parts(builder, value, dim, sizes))
}

// As in PyTorch, but for numbers of parts that do not come about, which are faults.
fn chunk(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (value, n) = (arguments.any_tensor(0)?, arguments.size(1, 1)?);
    let shape = builder.shape(value);
    let dim = arguments.dim(2, shape.len())?;
    let extent = shape[dim];
    let size = extent.div_ceil(n);
    if extent.div_ceil(size) != n {
        let message = format!(
            "dim {dim} of {extent} elements has no {n} parts of {size}, the last one smaller"
        );
        return Err(arguments.fault(1, message));
    }
    let sizes = (0..n).map(|at| size.min(extent - at * size)).collect();
    Ok(parts(builder, value, dim, sizes))
}

/// Returns the parts of these sizes along a dim.
fn parts(builder: &mut Builder, value: Value, dim: usize, sizes: Vec<usize>) -> Argument {
    let mut start = 0;
    let mut parts = Vec::with_capacity(sizes.len());
    for size in sizes {
        parts.push(Argument::Tensor(part(builder, value, dim, start, size)));
        start += size;
    }
    Argument::List(parts)
}

/// Returns the elements of one dim from `start` on.
pub(super) fn part(
    builder: &mut Builder,
    value: Value,
    dim: usize,
    start: usize,
    length: usize,
) -> Value {
    let crop = Pad::crop(builder.shape(value), dim, start, length);
    windowed(builder, value, crop)
}

/// Returns the window of a tensor, which is the tensor itself if it is all of it.
pub(super) fn windowed(builder: &mut Builder, value: Value, pad: Pad) -> Value {
    let is_all = pad.shape == builder.shape(value) && pad.low.iter().all(|&it| it == 0);
    if is_all { value } else { builder.graph.add(pad.into(), &[value]) }
}
