//! Losses: scalars, each the mean over the batch; and labels as vectors.

use soybean_plan::{Binary, Combine, DType, MAX_RANK, Register, Shape, Unary};

use super::{Arguments, Row, SampleArgument, activation, layout, map, reduction};
use crate::{
    builder::{Argument, Builder},
    fault::Fault,
    graph::{Source, Value},
    operators::{elementwise::all_dims, iota::Iota},
    scalar::{self, ScalarBuilder},
    signature::factor_id,
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
        build: |builder, arguments| mean_of(builder, arguments, mse),
        samples: PAIRS,
    },
    Row {
        name: "l1_loss",
        arguments: &["input", "target"],
        build: |builder, arguments| mean_of(builder, arguments, distance),
        samples: PAIRS,
    },
    Row {
        name: "huber_loss",
        arguments: &["input", "target", "delta"],
        build: huber,
        samples: LIMITED,
    },
    Row {
        name: "smooth_l1_loss",
        arguments: &["input", "target", "beta"],
        build: smooth_l1,
        samples: LIMITED,
    },
    Row {
        name: "binary_cross_entropy_with_logits",
        arguments: &["input", "target"],
        build: |builder, arguments| mean_of(builder, arguments, binary_cross_entropy),
        samples: PAIRS,
    },
    Row {
        name: "one_hot",
        arguments: &["labels", "n_classes"],
        build: one_hot,
        samples: &[
            &[SampleArgument::Labels { shape: &[4], n_classes: 6 }, SampleArgument::Integer(6)],
            &[SampleArgument::Labels { shape: &[3, 1], n_classes: 4 }, SampleArgument::Integer(5)],
        ],
    },
];

const PAIRS: &[&[SampleArgument]] = &[
    &[SampleArgument::tensor(&[4, 6]), SampleArgument::tensor(&[4, 6])],
    &[SampleArgument::tensor(&[3, 1, 5]), SampleArgument::tensor(&[3, 1, 5])],
];
const LIMITED: &[&[SampleArgument]] = &[
    &[
        SampleArgument::tensor(&[4, 6]),
        SampleArgument::tensor(&[4, 6]),
        SampleArgument::Float(0.75),
    ],
    &[SampleArgument::tensor(&[7]), SampleArgument::tensor(&[7]), SampleArgument::Integer(2)],
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
    let labels = label_tensor(builder, arguments, 1)?;
    let shape = builder.shape(labels);
    if shape[..] != [batch] {
        return Err(arguments
            .fault(1, format!("the labels must be [{batch}], one for each row, found {shape}")));
    }
    limit_labels(builder, labels, classes);
    Ok(labels)
}

/// A tensor of class labels.
fn label_tensor(
    builder: &Builder,
    arguments: &Arguments<'_>,
    position: usize,
) -> Result<Value, Fault> {
    let &Argument::Tensor(labels) = arguments.get(position) else {
        let found = arguments.get(position).kind();
        return Err(
            arguments.fault(position, format!("the labels must be a tensor, found {found}"))
        );
    };
    match builder.dtype(labels) {
        DType::I32 => Ok(labels),
        dtype @ DType::F32 => {
            let dims: Vec<String> =
                builder.shape(labels).iter().map(|it| format!(", {it}")).collect();
            Err(arguments
                .fault(position, format!("the labels must be i32, found {dtype}"))
                .with_help(format!("write its type as `Tensor<i32{}>`", dims.concat())))
        }
    }
}

/// Labels of the batch are checked to be less than the number of classes.
fn limit_labels(builder: &mut Builder, labels: Value, n_classes: usize) {
    if let Source::Input { n_classes: limit } = &mut builder.graph.node_mut(labels).source {
        *limit = Some(limit.map_or(n_classes, |other| other.min(n_classes)));
    }
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

/// The mean of a function of each element and its target.
fn mean_of(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    program: impl Fn(&mut ScalarBuilder, Register, Register) -> Register,
) -> Result<Argument, Fault> {
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
    let loss = program(&mut scalar, x, t);
    let space = all_dims(&of_input);
    let losses =
        map(builder, of_input, &[(input, space.clone()), (target, space)], &scalar.finish(loss));
    Ok(Argument::Tensor(reduction::mean_to(builder, losses, &[])))
}

// (x - t)^2
fn mse(it: &mut ScalarBuilder, x: Register, t: Register) -> Register {
    let difference = it.sub(x, t);
    it.mul(difference, difference)
}

// |x - t|
fn distance(it: &mut ScalarBuilder, x: Register, t: Register) -> Register {
    let difference = it.sub(x, t);
    activation::absolute(it, difference)
}

// d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d = x - t. Source: Huber 1964.
fn huber(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let delta = positive(arguments, 2)?;
    mean_of(builder, arguments, |it, x, t| huber_of(it, x, t, delta))
}

// The same divided by beta. Source: Girshick 2015.
fn smooth_l1(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let beta = positive(arguments, 2)?;
    mean_of(builder, arguments, |it, x, t| {
        let huber = huber_of(it, x, t, beta);
        it.scale(huber, 1.0 / beta)
    })
}

fn positive(arguments: &Arguments<'_>, position: usize) -> Result<f64, Fault> {
    let number = arguments.number(position)?;
    if number > 0.0 {
        return Ok(number);
    }
    Err(arguments.expected_number(position, "positive", number))
}

fn huber_of(it: &mut ScalarBuilder, x: Register, t: Register, delta: f64) -> Register {
    let square = mse(it, x, t);
    let (near, distance) = (it.scale(square, 0.5), distance(it, x, t));
    let beyond = it.offset(distance, -delta / 2.0);
    let (far, limit) = (it.scale(beyond, delta), it.constant(delta));
    let is_far = it.binary(Binary::Greater, distance, limit);
    it.select(is_far, far, near)
}

// log(1 + e^x) - t x, where log(1 + e^x) = m + log(e^-m + e^(x - m)) with m = max(x, 0), so that no exponential overflows. For the gradient m is a
// constant, which makes it sigmoid(x) - t everywhere.
fn binary_cross_entropy(it: &mut ScalarBuilder, x: Register, t: Register) -> Register {
    let maximum = it.unary(Unary::Relu, x);
    let m = it.detach(maximum);
    let (negative, shifted) = (it.unary(Unary::Negate, m), it.sub(x, m));
    let (of_zero, of_x) = (it.unary(Unary::Exp, negative), it.unary(Unary::Exp, shifted));
    let sum = it.add(of_zero, of_x);
    let (log, product) = (it.unary(Unary::Log, sum), it.mul(t, x));
    let softplus = it.add(log, m);
    it.sub(softplus, product)
}

fn one_hot(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let given = arguments.integer(1)?;
    let Some(n_classes) = usize::try_from(given).ok().filter(|&it| it > 0) else {
        return Err(arguments.expected_number(1, "positive", given));
    };
    let labels = label_tensor(builder, arguments, 0)?;
    let of_labels = builder.shape(labels);
    if of_labels.len() == MAX_RANK {
        return Err(layout::too_many_dims(arguments, 0, MAX_RANK + 1));
    }
    limit_labels(builder, labels, n_classes);
    let index = builder.graph.add(Iota { extent: n_classes }.into(), &[]);
    let shape: Shape = of_labels.iter().copied().chain([n_classes]).collect();
    let operands = [(labels, all_dims(&of_labels)), (index, vec![factor_id(of_labels.len())])];
    Ok(Argument::Tensor(map(builder, shape, &operands, &scalar::binary(Binary::Equal))))
}
