//! Operators that depend on an element's index along a dim.

use soybean_plan::{Combine, DType, EmbeddingForm, Shape, Unary};

use super::{
    Arguments, Row, SampleArgument, conversion, einsum, layout, map, map_one, reduction, slicing,
};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{
        concatenate::Concatenate,
        elementwise::{add, all_dims},
        embed::Embed,
        iota::Iota,
        pad::Pad,
    },
    scalar::{self, ScalarBuilder},
    signature::{FactorId, factor_id},
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const SAMPLES: &[&[SampleArgument]] = &[
    &[tensor(&[4, 6]), SampleArgument::Integer(1)],
    &[tensor(&[2, 4, 3]), SampleArgument::Integer(-2)],
    &[tensor(&[6, 1]), SampleArgument::Integer(0)],
    &[tensor(&[5]), SampleArgument::Integer(0)],
];

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "argmax",
        doc: "The index of the largest element along a dim, `i32`; the first of several. No gradient flows through it.",
        arguments: &["input", "dim"],
        build: |builder, arguments| {
            let value = arguments.tensor(builder, 0)?;
            place_of_largest(builder, arguments, value)
        },
        samples: SAMPLES,
    },
    Row {
        name: "argmin",
        doc: "The index of the smallest element along a dim, `i32`; the first of several. No gradient flows through it.",
        arguments: &["input", "dim"],
        build: |builder, arguments| {
            let value = arguments.tensor(builder, 0)?;
            let negative = map_one(builder, value, &scalar::unary(Unary::Negate));
            place_of_largest(builder, arguments, negative)
        },
        samples: SAMPLES,
    },
    Row {
        name: "cumsum",
        doc: "The sum of the elements up to each one along a dim, by `log2(n)` additions of the whole tensor. The dim is not split.",
        arguments: &["input", "dim"],
        build: cumsum,
        samples: &[
            SAMPLES[0],
            SAMPLES[1],
            SAMPLES[2],
            SAMPLES[3],
            &[LABELS, SampleArgument::Integer(1)],
        ],
    },
    Row {
        name: "tril",
        doc: "The elements of the last two dims up to a diagonal, and 0 above it; `diagonal` 0 is the main one.",
        arguments: &["input", "diagonal"],
        build: |builder, arguments| triangle(builder, arguments, Triangle::Lower),
        samples: TRIANGLES,
    },
    Row {
        name: "triu",
        doc: "The elements of the last two dims from a diagonal on, and 0 below it; `diagonal` 0 is the main one.",
        arguments: &["input", "diagonal"],
        build: |builder, arguments| triangle(builder, arguments, Triangle::Upper),
        samples: TRIANGLES,
    },
    Row {
        name: "roll",
        doc: "Moved by `shift` places along a dim; what leaves it at one end enters at the other.",
        arguments: &["input", "shift", "dim"],
        build: roll,
        samples: &[
            &[tensor(&[4, 6]), SampleArgument::Integer(2), SampleArgument::Integer(1)],
            &[tensor(&[5, 2, 3]), SampleArgument::Integer(-1), SampleArgument::Integer(0)],
            &[LABELS, SampleArgument::Integer(7), SampleArgument::Integer(-1)],
        ],
    },
    Row {
        name: "flip",
        doc: "In the opposite order along a dim.",
        arguments: &["input", "dim"],
        build: flip,
        samples: &[
            &[tensor(&[4, 6]), SampleArgument::Integer(0)],
            &[tensor(&[2, 5, 3]), SampleArgument::Integer(-2)],
        ],
    },
];

const LABELS: SampleArgument = SampleArgument::Labels { shape: &[2, 5], n_classes: 7 };
const TRIANGLES: &[&[SampleArgument]] = &[
    &[tensor(&[4, 6]), SampleArgument::Integer(0)],
    &[tensor(&[2, 4, 3]), SampleArgument::Integer(-1)],
    &[tensor(&[3, 6]), SampleArgument::Integer(2)],
];

/// The most elements along the dim of `argmax` and `argmin`: single precision has no larger
/// successive integers.
pub(super) const MAX_CANDIDATES: usize = 1 << 24;

// -max over i of -i at the maxima, where x[i] is not less than max(x). If the maximum is NaN, these
// are the elements that are NaN, as in PyTorch.
fn place_of_largest(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    value: Value,
) -> Result<Argument, CallDiagnostic> {
    let shape = builder.shape(value);
    let dim = arguments.dim(1, shape.len())?;
    if shape[dim] > MAX_CANDIDATES {
        let message = format!(
            "dim {dim} has at most {MAX_CANDIDATES} elements, as many as f32 can number, found {}",
            shape[dim]
        );
        return Err(arguments.fault(1, message));
    }
    let kept: Vec<FactorId> = (0..shape.len()).filter(|&it| it != dim).map(factor_id).collect();
    let maximum = reduction::reduce(builder, value, Combine::Max, &kept);
    let index = builder.graph.add(Iota::new(shape[dim]).into(), &[]);
    let mut it = ScalarBuilder::default();
    let (x, maximum_of_x, index_of_x) = (it.input(0), it.input(1), it.float(2));
    let (is_less, one) = (it.greater(maximum_of_x, x), it.constant(1.0));
    let (is_number, has_number) = (it.equal(x, x), it.equal(maximum_of_x, maximum_of_x));
    let has_none = it.sub(one, has_number);
    let is_beside_nan = it.mul(has_none, is_number);
    let is_less = it.add(is_less, is_beside_nan);
    let (beyond, negative) =
        (it.constant(-(shape[dim] as f64)), it.unary(Unary::Negate, index_of_x));
    let candidate = it.select(is_less, beyond, negative);
    let operands =
        [(value, all_dims(&shape)), (maximum, kept.clone()), (index, vec![factor_id(dim)])];
    let candidates = map(builder, shape, &operands, &it.finish(candidate));
    let first = reduction::reduce(builder, candidates, Combine::Max, &kept);
    let first = map_one(builder, first, &scalar::unary(Unary::Negate));
    Ok(Argument::Tensor(conversion::converted(builder, first, DType::I32)))
}

// Source: Hillis & Steele 1986. After the step with distance d, y[i] is the sum of the 2 d elements
// up to x[i]. Unlike in a product with a triangle, nothing that follows x[i] can make y[i] NaN.
fn cumsum(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.any_tensor(0)?;
    let shape = builder.shape(value);
    let dim = arguments.dim(1, shape.len())?;
    let mut sums = value;
    let mut distance = 1;
    while distance < shape[dim] {
        let mut low = vec![0; shape.len()];
        low[dim] = i32::try_from(distance).expect("extents are below 2^31");
        let shifted = builder.graph.add(Pad { low, shape, fill: 0.0 }.into(), &[sums]);
        sums = add(&mut builder.graph, sums, shifted);
        distance *= 2;
    }
    Ok(Argument::Tensor(sums))
}

/// The part of matrices that is kept.
#[derive(Clone, Copy)]
enum Triangle {
    Lower,
    Upper,
}

// Elements with column - row above the diagonal, or below it, are 0. Single precision holds all
// indices up to 2^24.
fn triangle(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    kept: Triangle,
) -> Result<Argument, CallDiagnostic> {
    let (value, diagonal) = (arguments.tensor(builder, 0)?, arguments.integer(1)?);
    let shape = builder.shape(value);
    let [.., rows, columns] = shape[..] else {
        let message = format!("takes tensors of at least 2 dims, found {}", shape.len());
        return Err(arguments.fault(0, message));
    };
    if rows.max(columns) > MAX_CANDIDATES {
        let message = format!("matrices have at most {MAX_CANDIDATES} rows and columns");
        return Err(arguments.fault(0, message));
    }
    let index = [rows, columns].map(|extent| builder.graph.add(Iota::new(extent).into(), &[]));
    let mut it = ScalarBuilder::default();
    let (x, row, column, zero) = (it.input(0), it.float(1), it.float(2), it.constant(0.0));
    let last = it.offset(row, diagonal as f64);
    let is_outside = match kept {
        Triangle::Lower => it.greater(column, last),
        Triangle::Upper => it.greater(last, column),
    };
    let result = it.select(is_outside, zero, x);
    let [of_row, of_column] = [2, 1].map(|from_end| vec![factor_id(shape.len() - from_end)]);
    let operands = [(value, all_dims(&shape)), (index[0], of_row), (index[1], of_column)];
    Ok(Argument::Tensor(map(builder, shape, &operands, &it.finish(result))))
}

// Two parts in the other order.
fn roll(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (value, shift) = (arguments.any_tensor(0)?, arguments.integer(1)?);
    let shape = builder.shape(value);
    let dim = arguments.dim(2, shape.len())?;
    let extent = i64::try_from(shape[dim]).expect("extents are far below 2^63");
    let n_moved = usize::try_from(shift.rem_euclid(extent)).expect("it is not negative");
    if n_moved == 0 {
        return Ok(Argument::Tensor(value));
    }
    let n_kept = shape[dim] - n_moved;
    let parts = [(n_kept, n_moved), (0, n_kept)]
        .map(|(start, length)| slicing::part(builder, value, dim, start, length));
    Ok(Argument::Tensor(builder.graph.add(Concatenate { dim }.into(), &parts)))
}

fn flip(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    let dim = arguments.dim(1, shape.len())?;
    let extent = shape[dim];
    if extent > MAX_CANDIDATES {
        let message = format!("dim {dim} has at most {MAX_CANDIDATES} elements, found {extent}");
        return Err(arguments.fault(1, message));
    }
    Ok(Argument::Tensor(flipped(builder, value, dim)))
}

/// Returns the elements along a dim of at most [`MAX_CANDIDATES`] in the opposite order: the rows
/// of a table. The dim is moved to the front and back.
pub(super) fn flipped(builder: &mut Builder, value: Value, dim: usize) -> Value {
    let shape = builder.shape(value);
    let extent = shape[dim];
    if extent == 1 {
        return value;
    }
    let table = layout::permuted(builder, value, moved(shape.len(), dim, 0));
    let of_table = builder.shape(table);
    let flat = Shape::new(&[extent, shape.n_elements() / extent]);
    let table = layout::reshaped(builder, table, flat);
    let rows = builder.graph.add(Iota::new(extent).into(), &[]);
    let mut it = ScalarBuilder::default();
    let (last, row) = (it.constant((extent - 1) as f64), it.float(0));
    let opposite = it.sub(last, row);
    let program = it.finish(opposite);
    let indices = map(builder, Shape::new(&[extent]), &[(rows, vec![0])], &program);
    let indices = conversion::converted(builder, indices, DType::I32);
    let embed = Embed { form: EmbeddingForm::Gather, vocabulary: extent };
    let flipped = builder.graph.add(embed.into(), &[indices, table, rows]);
    let flipped = layout::reshaped(builder, flipped, of_table);
    layout::permuted(builder, flipped, moved(shape.len(), 0, dim))
}

/// Returns the order of dims with one dim moved to another place.
fn moved(rank: usize, from: usize, to: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).collect();
    let dim = order.remove(from);
    order.insert(to, dim);
    order
}

/// Returns the matrix whose elements are a function of their two indices.
pub(super) fn of_indices(
    builder: &mut Builder,
    extents: [usize; 2],
    program: &soybean_plan::ScalarProgram,
) -> Value {
    let index = extents.map(|extent| builder.graph.add(Iota::new(extent).into(), &[]));
    let operands = [(index[0], vec![0]), (index[1], vec![1])];
    map(builder, Shape::new(&extents), &operands, program)
}

/// Returns the vectors along one dim, each multiplied by a matrix.
pub(super) fn along(builder: &mut Builder, value: Value, dim: usize, matrix: Value) -> Value {
    let mut letters: Vec<u8> = (b'a'..).take(builder.shape(value).len()).collect();
    let of_value = letters.clone();
    let from = std::mem::replace(&mut letters[dim], b'z');
    einsum::product(builder, (value, of_value), (matrix, vec![from, b'z']), &letters)
}
