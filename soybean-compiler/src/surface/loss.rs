//! Losses: scalars, each the mean over the batch.

use soybean_plan::{Binary, Combine, DType, Unary};

use super::{Arguments, Row, SampleArgument, map, reduction};
use crate::{
    builder::{Argument, Builder},
    fault::Fault,
    graph::{Source, Value},
    operators::{elementwise::all_dims, iota::Iota},
    scalar::ScalarBuilder,
};

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "cross_entropy",
        arguments: &["logits", "labels"],
        build: cross_entropy,
        samples: &[&[
            SampleArgument::tensor(&[4, 6]),
            SampleArgument::Labels { shape: &[4], n_classes: 6 },
        ]],
    },
    Row {
        name: "mse",
        arguments: &["input", "target"],
        build: mse,
        samples: &[&[SampleArgument::tensor(&[4, 6]), SampleArgument::tensor(&[4, 6])]],
    },
];

// mean over n of log(sum over c of e^(x[n, c] - m[n])) - (x[n, y[n]] - m[n]), with m the maximum of each row
fn cross_entropy(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let logits = arguments.tensor(builder, 0)?;
    let shape = builder.shape(logits);
    if shape.len() != 2 {
        return Err(
            arguments.fault(0, format!("the logits must be [batch, classes], found {shape}"))
        );
    }
    let labels = labels(builder, arguments, shape[0], shape[1])?;
    let parts = reduction::Shifted::new(builder, logits, 1);
    let chosen = chosen(builder, parts.shifted, labels);
    let mut scalar = ScalarBuilder::default();
    let (sum, chosen_logit) = (scalar.input(0), scalar.input(1));
    let log = scalar.unary(Unary::Log, sum);
    let loss = scalar.sub(log, chosen_logit);
    let rows = builder.shape(parts.sum);
    let losses = map(
        builder,
        rows,
        &[(parts.sum, all_dims(&rows)), (chosen, all_dims(&rows))],
        &scalar.finish(loss),
    );
    Ok(Argument::Tensor(reduction::mean_to(builder, losses, &[])))
}

fn labels(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    batch: usize,
    classes: usize,
) -> Result<Value, Fault> {
    let &Argument::Tensor(labels) = arguments.get(1) else {
        return Err(arguments
            .fault(1, format!("the labels must be a tensor, found {}", arguments.get(1).kind())));
    };
    let (shape, dtype) = (builder.shape(labels), builder.dtype(labels));
    if dtype != DType::I32 {
        let message = format!("the labels must be i32, found {dtype}");
        return Err(arguments
            .fault(1, message)
            .with_help(format!("write its type as `Tensor<i32, {batch}>`")));
    }
    if shape[..] != [batch] {
        return Err(arguments
            .fault(1, format!("the labels must be [{batch}], one for each row, found {shape}")));
    }
    if let Source::Input { n_classes } = &mut builder.graph.node_mut(labels).source {
        *n_classes = Some(n_classes.map_or(classes, |other| other.min(classes)));
    }
    Ok(labels)
}

/// The element of each row that its label names: the sum over the row of the elements whose index equals the label.
fn chosen(builder: &mut Builder, rows: Value, labels: Value) -> Value {
    let shape = builder.shape(rows);
    let index = builder.graph.add(Iota { extent: shape[1] }.into(), &[]);
    let mut scalar = ScalarBuilder::default();
    let (x, label, index_of_x, zero) =
        (scalar.input(0), scalar.input(1), scalar.input(2), scalar.constant(0.0));
    let is_chosen = scalar.binary(Binary::Equal, label, index_of_x);
    let result = scalar.select(is_chosen, x, zero);
    let operands = [(rows, all_dims(&shape)), (labels, vec![0]), (index, vec![1])];
    let masked = map(builder, shape, &operands, &scalar.finish(result));
    reduction::reduce(builder, masked, Combine::Sum, &[0])
}

// mean of (x - t)^2
fn mse(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let (input, target) = (arguments.tensor(builder, 0)?, arguments.tensor(builder, 1)?);
    let (of_input, of_target) = (builder.shape(input), builder.shape(target));
    if of_input != of_target {
        return Err(arguments.fault(
            1,
            format!("the target must have the input's shape {of_input}, found {of_target}"),
        ));
    }
    let mut scalar = ScalarBuilder::default();
    let (x, t) = (scalar.input(0), scalar.input(1));
    let difference = scalar.sub(x, t);
    let square = scalar.mul(difference, difference);
    let space = all_dims(&of_input);
    let squares =
        map(builder, of_input, &[(input, space.clone()), (target, space)], &scalar.finish(square));
    Ok(Argument::Tensor(reduction::mean_to(builder, squares, &[])))
}
