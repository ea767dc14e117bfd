//! Operators that depend on an element's index along a dim.

use soybean_plan::{Binary, Combine, DType, Shape, Unary};

use super::{Arguments, Row, SampleArgument, conversion, einsum, map, map_one, reduction};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{elementwise::all_dims, iota::Iota},
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
        build: argmax,
        samples: SAMPLES,
    },
    Row {
        name: "cumsum",
        doc: "The sum of the elements up to each one along a dim, as a product with a triangle: `n^2` multiplications for `n` elements.",
        arguments: &["input", "dim"],
        build: cumsum,
        samples: SAMPLES,
    },
];

// -max over i of -i at the maxima: x[i] not less than max(x). A NaN is not less either, so that the
// index is in range.
fn argmax(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    let dim = arguments.dim(1, shape.len())?;
    let kept: Vec<FactorId> = (0..shape.len()).filter(|&it| it != dim).map(factor_id).collect();
    let maximum = reduction::reduce(builder, value, Combine::Max, &kept);
    let index = builder.graph.add(Iota { extent: shape[dim] }.into(), &[]);
    let mut it = ScalarBuilder::default();
    let (x, maximum_of_x, index_of_x) = (it.input(0), it.input(1), it.input(2));
    let is_less = it.binary(Binary::Greater, maximum_of_x, x);
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

// y[j] = sum over i of x[i] t[i, j], where t[i, j] is 1 if i <= j, else 0
fn cumsum(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    let dim = arguments.dim(1, shape.len())?;
    let n = shape[dim];
    let mut it = ScalarBuilder::default();
    let (row, column, zero, one) = (it.input(0), it.input(1), it.constant(0.0), it.constant(1.0));
    let is_below = it.binary(Binary::Greater, row, column);
    let element = it.select(is_below, zero, one);
    let triangle = of_indices(builder, [n, n], &it.finish(element));
    Ok(Argument::Tensor(along(builder, value, dim, triangle)))
}

/// Returns the matrix whose elements are a function of their two indices.
pub(super) fn of_indices(
    builder: &mut Builder,
    extents: [usize; 2],
    program: &soybean_plan::ScalarProgram,
) -> Value {
    let index = extents.map(|extent| builder.graph.add(Iota { extent }.into(), &[]));
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
