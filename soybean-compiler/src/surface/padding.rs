//! Tensors with more elements around them: numbers, or their own elements.

use soybean_plan::Shape;

use super::{Arguments, Row, SampleArgument, along, broadcast::squeezed, map, slicing};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{concatenate::Concatenate, pad::Pad},
    scalar,
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

pub(super) const TABLE: &[Row] = &[Row {
    name: "pad",
    doc: "With more around it: two numbers of elements, before and after, for the last dim, then for the one before it, and so on. `value` is a number, or it is `\"reflect\"`, `\"replicate\"` or `\"circular\"` for the tensor's own elements.",
    arguments: &["input", "padding", "value"],
    build: pad,
    samples: &[
        &[tensor(&[4, 6]), list(&[1, 2]), integer(0)],
        &[tensor(&[4, 2, 3]), list(&[0, 0, 2, 1]), SampleArgument::Float(1.5)],
        &[tensor(&[6, 4]), list(&[-1, 2, 0, -3]), SampleArgument::Float(-1.0)],
        &[tensor(&[4, 2]), list(&[]), integer(0)],
        &[LABELS, list(&[2, -1]), integer(3)],
        &[tensor(&[2, 4, 6]), list(&[1, 3, 1, 0]), SampleArgument::Text("reflect")],
        &[tensor(&[2, 4, 6]), list(&[1, 3, 0, 7]), SampleArgument::Text("replicate")],
        &[tensor(&[2, 4, 6]), list(&[6, 1, 0, 2]), SampleArgument::Text("circular")],
    ],
}];

/// The source of the elements around a tensor that are its own.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// The elements beside the first and the last one, mirrored at these.
    Reflect,
    /// The first and the last element.
    Replicate,
    /// The elements at the other end.
    Circular,
}

impl Mode {
    const ALL: [(&'static str, Self); 3] =
        [("reflect", Self::Reflect), ("replicate", Self::Replicate), ("circular", Self::Circular)];

    /// Returns the most elements that a dim of this extent gives on one side.
    const fn most(self, extent: usize) -> usize {
        match self {
            Self::Reflect => extent - 1,
            Self::Replicate => usize::MAX,
            Self::Circular => extent,
        }
    }
}

// PyTorch's `F.pad`.
fn pad(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let shape = builder.shape(arguments.any_tensor(0)?);
    let given = arguments.integers(1)?;
    if !given.len().is_multiple_of(2) || given.len() > 2 * shape.len() {
        let message = format!(
            "the padding of a tensor of {} dims is at most {} pairs of numbers, found {given:?}",
            shape.len(),
            shape.len()
        );
        return Err(arguments
            .fault(1, message)
            .with_help("before and after the last dim, then the one before it, and so on"));
    }
    match arguments.get(2) {
        Argument::Text(name) => {
            let Some((_, mode)) = Mode::ALL.iter().find(|(known, _)| known == name) else {
                let message = format!("there is no mode `\"{name}\"`");
                let help = "the modes are \"reflect\", \"replicate\" and \"circular\"";
                return Err(arguments.fault(2, message).with_help(help));
            };
            surrounded(builder, arguments, &given, *mode)
        }
        other if other.as_number().is_some() => filled(builder, arguments, &given),
        _ => Err(arguments.expected(2, "a number or the name of a mode")),
    }
}

/// Pads with a number; negative paddings take elements away.
fn filled(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    given: &[i64],
) -> Result<Argument, CallDiagnostic> {
    let (value, fill) = (arguments.any_tensor(0)?, arguments.number(2)?);
    let shape = builder.shape(value);
    let mut low = vec![0; shape.len()];
    let mut extents: Vec<usize> = shape.to_vec();
    for (at, pair) in given.chunks(2).enumerate() {
        let dim = shape.len() - 1 - at;
        let [before, after] = [pair[0], pair[1]].map(i32::try_from);
        let padded = |before: i32, after: i32| {
            let extent = i64::try_from(shape[dim]).ok()? + i64::from(before) + i64::from(after);
            usize::try_from(extent).ok().filter(|&it| it > 0)
        };
        let extent = before.ok().zip(after.ok()).and_then(|(x, y)| Some((x, padded(x, y)?)));
        let Some((before, extent)) = extent else {
            let message = format!(
                "nothing is left of dim {dim}, which has {} elements, with {} before and {} after",
                shape[dim], pair[0], pair[1]
            );
            return Err(arguments.fault(1, message));
        };
        (low[dim], extents[dim]) = (before, extent);
    }
    let pad = Pad { low, shape: Shape::new(&extents), fill };
    Ok(Argument::Tensor(slicing::windowed(builder, value, pad)))
}

/// Pads one dim after another with the tensor's own elements.
fn surrounded(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    given: &[i64],
    mode: Mode,
) -> Result<Argument, CallDiagnostic> {
    let mut value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    for (at, pair) in given.chunks(2).enumerate() {
        let dim = shape.len() - 1 - at;
        let most = mode.most(shape[dim]).min(along::MAX_CANDIDATES);
        let size = |it: i64| usize::try_from(it).ok().filter(|&it| it <= most);
        let Some((before, after)) = size(pair[0]).zip(size(pair[1])) else {
            let message = format!(
                "dim {dim} of {} elements has paddings of 0 to {most} in this mode, found {pair:?}",
                shape[dim]
            );
            return Err(arguments.fault(1, message));
        };
        let sides = [(before, Side::Before), (after, Side::After)].map(|(length, side)| {
            (length > 0).then(|| beside(builder, value, dim, length, mode, side))
        });
        let parts: Vec<Value> = [sides[0], Some(value), sides[1]].into_iter().flatten().collect();
        if parts.len() > 1 {
            value = builder.graph.add(Concatenate { dim }.into(), &parts);
        }
    }
    Ok(Argument::Tensor(value))
}

/// A side of a tensor along a dim.
#[derive(Clone, Copy)]
enum Side {
    Before,
    After,
}

/// Returns the elements on one side of a tensor.
fn beside(
    builder: &mut Builder,
    value: Value,
    dim: usize,
    length: usize,
    mode: Mode,
    side: Side,
) -> Value {
    let extent = builder.shape(value)[dim];
    let mut part = |start, length| slicing::part(builder, value, dim, start, length);
    let part = match (mode, side) {
        (Mode::Circular, Side::Before) => part(extent - length, length),
        (Mode::Circular, Side::After) => part(0, length),
        (Mode::Reflect, Side::Before) => part(1, length),
        (Mode::Reflect, Side::After) => part(extent - 1 - length, length),
        (Mode::Replicate, Side::Before) => part(0, 1),
        (Mode::Replicate, Side::After) => part(extent - 1, 1),
    };
    match mode {
        Mode::Reflect => along::flipped(builder, part, dim),
        Mode::Replicate => repeated(builder, part, dim, length),
        Mode::Circular => part,
    }
}

/// Returns a tensor of extent 1 along a dim, repeated along it.
fn repeated(builder: &mut Builder, value: Value, dim: usize, length: usize) -> Value {
    let shape = builder.shape(value).with(dim, length);
    let operand = squeezed(builder, value, &shape);
    map(builder, shape, &[operand], &scalar::identity())
}
