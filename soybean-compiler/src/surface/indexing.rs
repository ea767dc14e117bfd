//! Elements by their indices along a dim, with PyTorch's semantics.

use soybean_plan::{IndexingForm, Shape};

use super::{Arguments, Row, SampleArgument, labels, slicing};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{elementwise::add, index::Index, iota::Iota, pad::Pad},
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const fn integer(value: i64) -> SampleArgument {
    SampleArgument::Integer(value)
}

const fn indices(shape: &'static [usize], n_classes: usize) -> SampleArgument {
    SampleArgument::Labels { shape, n_classes }
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "gather",
        doc: "For each index, the element of the input with this index along a dim, and the same other indices. Along other dims the index may be shorter than the input. Computed indices out of range give zeros.",
        arguments: &["input", "dim", "index"],
        build: gather,
        samples: &[
            &[tensor(&[4, 6]), integer(1), indices(&[4, 2], 6)],
            &[tensor(&[5, 2, 3]), integer(0), indices(&[4, 2, 3], 5)],
            &[tensor(&[4, 6, 2]), integer(-2), indices(&[2, 8, 2], 6)],
            &[tensor(&[7]), integer(0), indices(&[4], 7)],
        ],
    },
    Row {
        name: "scatter_add",
        doc: "The input, plus each element of the source at its index along a dim, and the same other indices. The index may be shorter than the source, and along other dims than the input. Computed indices out of range add nothing.",
        arguments: &["input", "dim", "index", "source"],
        build: scatter_add,
        samples: &[
            &[tensor(&[4, 6]), integer(1), indices(&[4, 2], 6), tensor(&[4, 2])],
            &[tensor(&[5, 2, 3]), integer(0), indices(&[4, 2, 3], 5), tensor(&[6, 2, 3])],
            &[tensor(&[4, 3, 2]), integer(-2), indices(&[2, 8, 2], 3), tensor(&[2, 8, 3])],
        ],
    },
];

fn gather(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let lines = arguments.tensor(builder, 0)?;
    let (index, dim) = chosen(builder, arguments, lines)?;
    let extents = within(&builder.shape(index), dim, builder.shape(lines)[dim]);
    let lines = first_elements(builder, lines, extents);
    Ok(Argument::Tensor(indexed(builder, IndexingForm::Gather, dim, extents[dim], [index, lines])))
}

fn scatter_add(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let (lines, source) = (arguments.tensor(builder, 0)?, arguments.tensor(builder, 3)?);
    let (index, dim) = chosen(builder, arguments, lines)?;
    let (shape, of_index, of_source) =
        (builder.shape(lines), builder.shape(index), builder.shape(source));
    let is_within = of_index.iter().zip(&of_source[..]).all(|(index, source)| index <= source);
    if of_index.len() != of_source.len() || !is_within {
        let message = format!(
            "the source must have an element for each index, {of_index}, found {of_source}"
        );
        return Err(arguments.fault(3, message));
    }
    let source = first_elements(builder, source, of_index);
    let sums = indexed(builder, IndexingForm::ScatterAdd, dim, shape[dim], [index, source]);
    let whole = Pad { low: vec![0; shape.len()], shape, fill: 0.0 };
    let sums = slicing::windowed(builder, sums, whole);
    Ok(Argument::Tensor(add(&mut builder.graph, lines, sums)))
}

/// Returns the operator's indices, which are checked when the batch is given, and the dim.
fn chosen(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    lines: Value,
) -> Result<(Value, usize), CallDiagnostic> {
    let shape = builder.shape(lines);
    let dim = arguments.dim(1, shape.len())?;
    let index = labels::integers(builder, arguments, 2, "indices")?;
    let of_index = builder.shape(index);
    let is_within = |it: usize| it == dim || of_index[it] <= shape[it];
    if of_index.len() != shape.len() || !(0..shape.len()).all(is_within) {
        let message =
            format!("but for dim {dim}, the indices must be within {shape}, found {of_index}");
        return Err(arguments.fault(2, message));
    }
    labels::limit(builder, arguments, 2, index, shape[dim])?;
    Ok((index, dim))
}

/// Returns the shape of indices, with another extent of one dim.
fn within(of_index: &Shape, dim: usize, extent: usize) -> Shape {
    of_index.iter().enumerate().map(|(at, it)| if at == dim { extent } else { *it }).collect()
}

/// Returns the first elements along each dim.
fn first_elements(builder: &mut Builder, value: Value, shape: Shape) -> Value {
    slicing::windowed(builder, value, Pad { low: vec![0; shape.len()], shape, fill: 0.0 })
}

pub(super) fn indexed(
    builder: &mut Builder,
    form: IndexingForm,
    dim: usize,
    extent: usize,
    [index, elements]: [Value; 2],
) -> Value {
    let rows = builder.graph.add(Iota::new(extent).into(), &[]);
    builder.graph.add(Index { form, dim, extent }.into(), &[index, elements, rows])
}
