//! Tensors joined: functions of arrays of tensors.

use soybean_plan::{MAX_RANK, Shape};

use super::{Arguments, Row, SampleArgument, layout};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::concatenate::Concatenate,
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const fn integer(value: i64) -> SampleArgument {
    SampleArgument::Integer(value)
}

const LABELS: SampleArgument = SampleArgument::Labels { shape: &[2, 3], n_classes: 7 };

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "concat",
        doc: "Tensors one after another along a dim; PyTorch's `cat`.",
        arguments: &["tensors", "dim"],
        build: concat,
        samples: &[
            &[SampleArgument::Array(&[tensor(&[4, 6]), tensor(&[4, 2])]), integer(1)],
            &[
                SampleArgument::Array(&[tensor(&[1, 4]), tensor(&[3, 4]), tensor(&[2, 4])]),
                integer(0),
            ],
            &[SampleArgument::Array(&[tensor(&[2, 2, 3]), tensor(&[2, 5, 3])]), integer(-2)],
            &[SampleArgument::Array(&[tensor(&[4])]), integer(0)],
            &[SampleArgument::Array(&[LABELS, LABELS]), integer(0)],
        ],
    },
    Row {
        name: "stack",
        doc: "Tensors of one shape one after another along a new dim.",
        arguments: &["tensors", "dim"],
        build: stack,
        samples: &[
            &[SampleArgument::Array(&[tensor(&[4, 6]), tensor(&[4, 6])]), integer(1)],
            &[SampleArgument::Array(&[tensor(&[4]), tensor(&[4]), tensor(&[4])]), integer(-1)],
            &[SampleArgument::Array(&[tensor(&[]), tensor(&[])]), integer(0)],
        ],
    },
];

fn concat(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let tensors = arguments.tensors(builder, 0)?;
    let first = builder.shape(tensors[0]);
    let dim = arguments.dim(1, first.len())?;
    for (position, &value) in tensors.iter().enumerate() {
        let shape = builder.shape(value);
        let fits = shape.len() == first.len() && shape.with(dim, first[dim]) == first;
        if !fits {
            let message = format!("tensor {position} is {shape}, but tensor 0 is {first}");
            let help = format!("all extents but those of dim {dim} must be equal");
            return Err(arguments.fault(0, message).with_help(help));
        }
    }
    Ok(Argument::Tensor(concatenated(builder, &tensors, dim)))
}

fn concatenated(builder: &mut Builder, tensors: &[Value], dim: usize) -> Value {
    match *tensors {
        [one] => one,
        _ => builder.graph.add(Concatenate { dim }.into(), tensors),
    }
}

fn stack(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let tensors = arguments.tensors(builder, 0)?;
    let first = builder.shape(tensors[0]);
    let other = tensors.iter().map(|&it| builder.shape(it)).enumerate().find(|it| it.1 != first);
    if let Some((position, shape)) = other {
        let message = format!("tensor {position} is {shape}, but tensor 0 is {first}");
        return Err(arguments.fault(0, message).with_help("all shapes must be equal"));
    }
    if first.len() == MAX_RANK {
        return Err(layout::too_many_dims(arguments, 0, MAX_RANK + 1));
    }
    let dim = arguments.dim(1, first.len() + 1)?;
    let mut extents = first.to_vec();
    extents.insert(dim, 1);
    let shape = Shape::new(&extents);
    let parts: Vec<Value> =
        tensors.iter().map(|&it| layout::reshaped(builder, it, shape)).collect();
    Ok(Argument::Tensor(concatenated(builder, &parts, dim)))
}
