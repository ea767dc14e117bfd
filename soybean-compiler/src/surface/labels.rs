//! Labels and indices: integers that number classes or the rows of a table.

use std::collections::BTreeSet;

use soybean_plan::{Binary, DType, EmbeddingForm, MAX_RANK, Shape};

use super::{Arguments, Row, SampleArgument, layout, map};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    graph::Source,
    operators::{
        elementwise::{Elementwise, all_dims},
        embed::Embed,
        iota::Iota,
        pad::Pad,
    },
    scalar,
    signature::factor_id,
    value::Value,
};

const fn labels(shape: &'static [usize], n_classes: usize) -> SampleArgument {
    SampleArgument::Labels { shape, n_classes }
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "one_hot",
        doc: "A last dim of `n_classes` that holds 1 at the label and 0 elsewhere. Computed labels out of range have no 1.",
        arguments: &["labels", "n_classes"],
        build: one_hot,
        samples: &[
            &[labels(&[4], 6), SampleArgument::Integer(6)],
            &[labels(&[3, 1], 4), SampleArgument::Integer(5)],
        ],
    },
    Row {
        name: "embedding",
        doc: "The rows of `weight: [v, d]` that indices `[..]` number, `[.., d]`. Computed indices out of range give zeros.",
        arguments: &["input", "weight"],
        build: embedding,
        samples: &[
            &[labels(&[4], 6), SampleArgument::tensor(&[6, 2])],
            &[labels(&[2, 3], 5), SampleArgument::tensor(&[8, 3])],
            &[labels(&[1, 2, 1], 1), SampleArgument::tensor(&[1, 5])],
        ],
    },
];

fn one_hot(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let n_classes = arguments.size(1, 1)?;
    let labels = integers(builder, arguments, 0, "labels")?;
    let of_labels = builder.shape(labels);
    if of_labels.len() == MAX_RANK {
        return Err(layout::too_many_dims(arguments, 0, MAX_RANK + 1));
    }
    limit(builder, arguments, 0, labels, n_classes)?;
    let index = builder.graph.add(Iota::new(n_classes).into(), &[]);
    let shape: Shape = of_labels.iter().copied().chain([n_classes]).collect();
    let operands = [(labels, all_dims(&of_labels)), (index, vec![factor_id(of_labels.len())])];
    Ok(Argument::Tensor(map(builder, shape, &operands, &scalar::binary(Binary::EqualIntegers))))
}

// Rows of a table by their numbers; PyTorch's `F.embedding` without its options.
fn embedding(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let weight = arguments.tensor(builder, 1)?;
    let table = builder.shape(weight);
    let [vocabulary, _] = table[..] else {
        return Err(arguments.fault(1, format!("the weight must be [rows, width], found {table}")));
    };
    let indices = integers(builder, arguments, 0, "indices")?;
    if builder.shape(indices).len() == MAX_RANK {
        return Err(layout::too_many_dims(arguments, 0, MAX_RANK + 1));
    }
    limit(builder, arguments, 0, indices, vocabulary)?;
    let rows = builder.graph.add(Iota::new(vocabulary).into(), &[]);
    let embed = Embed { form: EmbeddingForm::Gather, vocabulary };
    Ok(Argument::Tensor(builder.graph.add(embed.into(), &[indices, weight, rows])))
}

/// Returns a tensor of integers, which messages call `what`.
pub(super) fn integers(
    builder: &Builder,
    arguments: &Arguments<'_>,
    position: usize,
    what: &str,
) -> Result<Value, CallDiagnostic> {
    let &Argument::Tensor(integers) = arguments.get(position) else {
        let found = arguments.get(position).kind();
        return Err(
            arguments.fault(position, format!("the {what} must be a tensor, found {found}"))
        );
    };
    match builder.dtype(integers) {
        DType::I32 => Ok(integers),
        dtype @ (DType::F32 | DType::Bf16) => {
            let dims: Vec<String> =
                builder.shape(integers).iter().map(|it| format!(", {it}")).collect();
            Err(arguments
                .fault(position, format!("the {what} must be i32, found {dtype}"))
                .with_help(format!("write its type as `Tensor<i32{}>`", dims.concat())))
        }
    }
}

/// Returns whether the model computes any of these integers. Others are of the batch, and are
/// checked when they are given.
pub(super) fn are_computed(builder: &Builder, integers: Value) -> bool {
    sources(builder, integers)
        .into_iter()
        .any(|it| builder.graph.operator_as::<Elementwise>(it).is_some())
}

/// Returns these integers and all from which they are rearranged, each once.
fn sources(builder: &Builder, integers: Value) -> BTreeSet<Value> {
    let (mut found, mut open) = (BTreeSet::new(), vec![integers]);
    while let Some(value) = open.pop() {
        if found.insert(value) {
            let operands = builder.graph.operands(value).into_iter();
            open.extend(operands.filter(|it| builder.dtype(*it) == DType::I32));
        }
    }
    found
}

/// Integers of the batch are checked to be less than a number, also after a rearrangement. Their
/// padding must be less, too.
pub(super) fn limit(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    position: usize,
    integers: Value,
    n_classes: usize,
) -> Result<(), CallDiagnostic> {
    limit_but(builder, arguments, position, integers, n_classes, None)
}

/// Limits integers in the same way but for one, if all that limit them have the same exception.
pub(super) fn limit_but(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    position: usize,
    integers: Value,
    n_classes: usize,
    exception: Option<i32>,
) -> Result<(), CallDiagnostic> {
    for value in sources(builder, integers) {
        if let Source::Input { n_classes: limit, ignored_label } =
            &mut builder.graph.node_mut(value).source
        {
            let is_same = limit.is_none() || *ignored_label == exception;
            *ignored_label = exception.filter(|_| is_same);
            *limit = Some(limit.map_or(n_classes, |other| other.min(n_classes)));
        }
        if let Some(Pad { fill, .. }) = builder.graph.operator_as::<Pad>(value)
            && !(0.0..n_classes as f64).contains(fill)
            && exception.map(f64::from) != Some(*fill)
        {
            let message = format!("integers must be in 0..{n_classes}, but are padded with {fill}");
            return Err(arguments.fault(position, message));
        }
    }
    Ok(())
}
