//! Operators that depend on an element's index along a dim.

use soybean_plan::{Combine, DType, Shape, Unary};

use super::{Arguments, Row, SampleArgument, conversion, einsum, map, map_one, reduction};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{
        elementwise::{add, all_dims},
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
        build: argmax,
        samples: SAMPLES,
    },
    Row {
        name: "cumsum",
        doc: "The sum of the elements up to each one along a dim, by `log2(n)` additions of the whole tensor. The dim is not split.",
        arguments: &["input", "dim"],
        build: cumsum,
        samples: SAMPLES,
    },
];

/// The most elements along the dim of `argmax`: single precision has no larger successive integers.
const MAX_CANDIDATES: usize = 1 << 24;

// -max over i of -i at the maxima, where x[i] is not less than max(x). If the maximum is NaN, these
// are the elements that are NaN, as in PyTorch.
fn argmax(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
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
    let value = arguments.tensor(builder, 0)?;
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
