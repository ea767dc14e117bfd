//! Shapes: reshape, permute, and what is known of them at build time.

use soybean_plan::{MAX_RANK, Shape};

use super::{
    Arguments, Row, SampleArgument,
    broadcast::{broadcast_shape, squeezed},
    map,
};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{permute::Permute, reshape::Reshape},
    scalar,
    signature::factor_id,
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const LABELS: SampleArgument = SampleArgument::Labels { shape: &[2, 3], n_classes: 7 };

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "reshape",
        doc: "The same elements in another shape; one extent may be -1, which is what the others leave. A tuple takes -1 beside constants.",
        arguments: &["input", "shape"],
        build: reshape,
        samples: &[
            &[tensor(&[4, 6]), SampleArgument::List(&[4, 2, 3])],
            &[tensor(&[4, 6]), SampleArgument::List(&[6, 4])],
            &[tensor(&[2, 1, 6]), SampleArgument::List(&[12])],
            &[LABELS, SampleArgument::List(&[6])],
            &[tensor(&[4, 6]), SampleArgument::List(&[2, -1, 3])],
        ],
    },
    Row {
        name: "flatten",
        doc: "Dim 0 kept, the rest joined.",
        arguments: &["input"],
        build: |builder, arguments| {
            let value = arguments.any_tensor(0)?;
            let shape = builder.shape(value);
            let Some(&batch) = shape.first() else {
                return Err(arguments.fault(0, "takes tensors of at least 1 dim, found a scalar"));
            };
            let flat = Shape::new(&[batch, shape[1..].iter().product()]);
            Ok(Argument::Tensor(builder.graph.add(Reshape { shape: flat }.into(), &[value])))
        },
        samples: &[&[tensor(&[4, 2, 6])]],
    },
    Row {
        name: "transpose",
        doc: "The last two dims swapped.",
        arguments: &["input"],
        build: |builder, arguments| {
            let value = arguments.any_tensor(0)?;
            let rank = builder.shape(value).len();
            if rank < 2 {
                return Err(
                    arguments.fault(0, format!("takes tensors of at least 2 dims, found {rank}"))
                );
            }
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(rank - 1, rank - 2);
            Ok(Argument::Tensor(permuted(builder, value, order)))
        },
        samples: &[&[tensor(&[4, 6])], &[tensor(&[2, 4, 6])]],
    },
    Row {
        name: "permute",
        doc: "The dims in another order.",
        arguments: &["input", "dims"],
        build: permute,
        samples: &[
            &[tensor(&[2, 4, 6]), SampleArgument::List(&[2, 0, 1])],
            &[tensor(&[2, 4, 6]), SampleArgument::List(&[0, -1, -2])],
        ],
    },
    Row {
        name: "unsqueeze",
        doc: "A new dim of extent 1.",
        arguments: &["input", "dim"],
        build: unsqueeze,
        samples: &[
            &[tensor(&[4, 6]), SampleArgument::Integer(1)],
            &[tensor(&[3, 5]), SampleArgument::Integer(-1)],
            &[tensor(&[6]), SampleArgument::Integer(0)],
        ],
    },
    Row {
        name: "squeeze",
        doc: "Without a dim of extent 1.",
        arguments: &["input", "dim"],
        build: squeeze,
        samples: &[
            &[tensor(&[4, 1, 6]), SampleArgument::Integer(1)],
            &[tensor(&[1, 1, 5]), SampleArgument::Integer(-3)],
        ],
    },
    Row {
        name: "expand",
        doc: "Repeated along dims of extent 1 and missing outer dims.",
        arguments: &["input", "shape"],
        build: expand,
        samples: &[
            &[tensor(&[3, 1]), SampleArgument::List(&[2, 3, 5])],
            &[tensor(&[4, 6]), SampleArgument::List(&[4, 6])],
            &[tensor(&[1, 6]), SampleArgument::List(&[4, 6])],
        ],
    },
    Row {
        name: "repeat",
        doc: "Repeated along each dim as often as `repeats` says, whose first numbers are those of missing outer dims.",
        arguments: &["input", "repeats"],
        build: repeat,
        samples: &[
            &[tensor(&[4, 3]), SampleArgument::List(&[2, 1])],
            &[tensor(&[2, 3]), SampleArgument::List(&[4, 1, 2])],
            &[tensor(&[1, 6]), SampleArgument::List(&[4, 1])],
        ],
    },
    Row {
        name: "repeat_interleave",
        doc: "Each element along a dim `repeats` times in a row.",
        arguments: &["input", "repeats", "dim"],
        build: repeat_interleave,
        samples: &[
            &[tensor(&[4, 3]), SampleArgument::Integer(2), SampleArgument::Integer(-1)],
            &[tensor(&[2, 3]), SampleArgument::Integer(3), SampleArgument::Integer(0)],
        ],
    },
    Row {
        name: "dim",
        doc: "The extent of a dim, an integer.",
        arguments: &["input", "dim"],
        build: |builder, arguments| {
            let value = arguments.any_tensor(0)?;
            let shape = builder.shape(value);
            let extent = shape[arguments.dim(1, shape.len())?];
            Ok(Argument::Integer(i64::try_from(extent).expect("extents are far below 2^63")))
        },
        samples: &[],
    },
];

fn reshape(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.any_tensor(0)?;
    let from = builder.shape(value);
    let shape = inferred_shape(arguments, &from)?;
    if from.n_elements() != shape.n_elements() {
        let (before, after) = (from.n_elements(), shape.n_elements());
        return Err(
            arguments.fault(1, format!("{from} has {before} elements, {shape} has {after}"))
        );
    }
    Ok(Argument::Tensor(reshaped(builder, value, shape)))
}

/// Returns the shape that is given, with what the other extents leave in place of -1.
fn inferred_shape(arguments: &Arguments<'_>, from: &Shape) -> Result<Shape, CallDiagnostic> {
    let mut given = arguments.integers(1)?;
    let open: Vec<usize> = (0..given.len()).filter(|&at| given[at] == -1).collect();
    match open[..] {
        [] => {}
        [inferred] => {
            if let Some(extent) = given.iter().find(|it| !(**it > 0 || **it == -1)) {
                let message = format!("extents must be positive, or one -1, found {extent}");
                return Err(arguments.fault(1, message));
            }
            given[inferred] = 1;
            let (n_elements, others) =
                (from.n_elements(), shape_of(arguments, 1, &given)?.n_elements());
            if !n_elements.is_multiple_of(others) {
                let message = format!(
                    "{from} has {n_elements} elements, which the others, {others}, do not divide"
                );
                return Err(arguments.fault(1, message));
            }
            given[inferred] =
                i64::try_from(n_elements / others).expect("extents are far below 2^63");
        }
        _ => {
            return Err(arguments.fault(1, format!("only one extent can be -1, found {given:?}")));
        }
    }
    shape_of(arguments, 1, &given)
}

/// Returns the shape of the argument.
fn given_shape(arguments: &Arguments<'_>) -> Result<Shape, CallDiagnostic> {
    shape_of(arguments, 1, &arguments.integers(1)?)
}

/// Returns the shape with these extents, which an argument gives.
pub(super) fn shape_of(
    arguments: &Arguments<'_>,
    position: usize,
    given: &[i64],
) -> Result<Shape, CallDiagnostic> {
    let extent = |&extent: &i64| usize::try_from(extent).ok().filter(|&it| it > 0);
    let Some(extents) = given.iter().map(extent).collect::<Option<Vec<usize>>>() else {
        let message = format!("extents must be positive, found {given:?}");
        return Err(arguments.fault(position, message));
    };
    if extents.len() > MAX_RANK {
        return Err(too_many_dims(arguments, position, extents.len()));
    }
    Ok(Shape::new(&extents))
}

/// Returns the diagnostic of a result with more dims than tensors can have.
pub(super) fn too_many_dims(
    arguments: &Arguments<'_>,
    position: usize,
    found: usize,
) -> CallDiagnostic {
    arguments.fault(position, format!("a tensor has at most {MAX_RANK} dims, found {found}"))
}

pub(super) fn reshaped(builder: &mut Builder, value: Value, shape: Shape) -> Value {
    builder.graph.add(Reshape { shape }.into(), &[value])
}

fn unsqueeze(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.any_tensor(0)?;
    let mut extents = builder.shape(value).to_vec();
    if extents.len() == MAX_RANK {
        return Err(too_many_dims(arguments, 0, MAX_RANK + 1));
    }
    extents.insert(arguments.dim(1, extents.len() + 1)?, 1);
    Ok(Argument::Tensor(reshaped(builder, value, Shape::new(&extents))))
}

fn squeeze(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.any_tensor(0)?;
    let mut extents = builder.shape(value).to_vec();
    let dim = arguments.dim(1, extents.len())?;
    if extents[dim] != 1 {
        let message = format!("dim {dim} must have extent 1, found {}", extents[dim]);
        return Err(arguments.fault(1, message));
    }
    extents.remove(dim);
    Ok(Argument::Tensor(reshaped(builder, value, Shape::new(&extents))))
}

fn expand(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let (from, shape) = (builder.shape(value), given_shape(arguments)?);
    if from == shape {
        return Ok(Argument::Tensor(value));
    }
    if broadcast_shape(&from, &shape) != Some(shape) {
        let help = "aligned at the last dim, each extent must be the same, or 1 or missing before";
        return Err(arguments
            .fault(1, format!("{from} does not expand to {shape}"))
            .with_help(help));
    }
    let operand = squeezed(builder, value, &shape);
    Ok(Argument::Tensor(map(builder, shape, &[operand], &scalar::identity())))
}

fn permute(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.any_tensor(0)?;
    let rank = builder.shape(value).len();
    let given = arguments.integers(1)?;
    let signed_rank = i64::try_from(rank).expect("ranks are small");
    let from_start = |&dim: &i64| if dim < 0 { dim + signed_rank } else { dim };
    let order: Vec<usize> =
        given.iter().map(from_start).filter_map(|it| usize::try_from(it).ok()).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() || order.len() != given.len() {
        return Err(arguments
            .fault(1, format!("the dims must be 0..{rank} in some order, found {given:?}")));
    }
    Ok(Argument::Tensor(permuted(builder, value, order)))
}

pub(super) fn permuted(builder: &mut Builder, value: Value, order: Vec<usize>) -> Value {
    builder.graph.add(Permute { order }.into(), &[value])
}

// PyTorch's `repeat`, NumPy's `tile`.
fn repeat(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let mut value = arguments.tensor(builder, 0)?;
    let (from, repeats) = (builder.shape(value), shape_of(arguments, 1, &arguments.integers(1)?)?);
    let Some(n_missing) = repeats.len().checked_sub(from.len()) else {
        let message = format!("a number for each dim of {from} is needed, found {repeats}");
        return Err(arguments.fault(1, message));
    };
    let shape: Shape = vec![1; n_missing].into_iter().chain(from.iter().copied()).collect();
    value = if n_missing == 0 { value } else { reshaped(builder, value, shape) };
    for (dim, &n) in repeats.iter().enumerate() {
        value = repeated(builder, arguments, value, [dim, dim], n)?;
    }
    Ok(Argument::Tensor(value))
}

fn repeat_interleave(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let (value, n) = (arguments.tensor(builder, 0)?, arguments.size(1, 1)?);
    let dim = arguments.dim(2, builder.shape(value).len())?;
    Ok(Argument::Tensor(repeated(builder, arguments, value, [dim, dim + 1], n)?))
}

/// Repeats a dim `n` times: along a new dim, before the repeated one or after it, with which the
/// dim is then joined.
pub(super) fn repeated(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    value: Value,
    [dim, place]: [usize; 2],
    n: usize,
) -> Result<Value, CallDiagnostic> {
    let from = builder.shape(value);
    if n == 1 {
        return Ok(value);
    }
    if from[dim] == 1 {
        let shape = from.with(dim, n);
        let operand = squeezed(builder, value, &shape);
        return Ok(map(builder, shape, &[operand], &scalar::identity()));
    }
    if from.len() == MAX_RANK {
        let message = format!("a tensor of {MAX_RANK} dims cannot be repeated along one above 1");
        return Err(arguments.fault(0, message));
    }
    let mut extents = from.to_vec();
    extents.insert(place, n);
    let dims = (0..extents.len()).filter(|&it| it != place).map(factor_id).collect();
    let copies = map(builder, Shape::new(&extents), &[(value, dims)], &scalar::identity());
    Ok(reshaped(builder, copies, from.with(dim, from[dim] * n)))
}
