//! Losses: scalars, each the mean over the batch.

use soybean_plan::{Binary, Combine, Register, Unary};

use super::{Arguments, Row, SampleArgument, activation, labels, map, reduction};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{elementwise::all_dims, iota::Iota},
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
    value::Value,
};

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "cross_entropy",
        doc: "The mean of `-log(softmax(logits)[label])` over logits `[.., classes]` and labels `[..]`. Computed labels out of range make it NaN.",
        arguments: &["logits", "labels"],
        build: cross_entropy,
        samples: &[
            &[
                SampleArgument::tensor(&[4, 6]),
                SampleArgument::Labels { shape: &[4], n_classes: 6 },
            ],
            &[
                SampleArgument::tensor(&[2, 3, 4]),
                SampleArgument::Labels { shape: &[2, 3], n_classes: 4 },
            ],
        ],
    },
    Row {
        name: "mse",
        doc: "The mean of `(x - target)^2`.",
        arguments: &["input", "target"],
        build: |builder, arguments| mean_of(builder, arguments, mse),
        samples: PAIRS,
    },
    Row {
        name: "l1_loss",
        doc: "The mean of `|x - target|`.",
        arguments: &["input", "target"],
        build: |builder, arguments| mean_of(builder, arguments, distance),
        samples: PAIRS,
    },
    Row {
        name: "huber_loss",
        doc: "The mean of a loss that is square up to `delta` and linear beyond.",
        arguments: &["input", "target", "delta"],
        build: huber,
        samples: LIMITED,
    },
    Row {
        name: "smooth_l1_loss",
        doc: "`huber_loss` of `beta`, divided by `beta`.",
        arguments: &["input", "target", "beta"],
        build: smooth_l1,
        samples: LIMITED,
    },
    Row {
        name: "binary_cross_entropy_with_logits",
        doc: "The mean of `-t log(s) - (1 - t) log(1 - s)` with `s = sigmoid(x)`.",
        arguments: &["input", "target"],
        build: |builder, arguments| mean_of(builder, arguments, binary_cross_entropy),
        samples: PAIRS,
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

// mean over n of log(sum over c of e^(x[n, c] - m[n])) - (x[n, y[n]] - m[n]), with m the maximum of
// each row
fn cross_entropy(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let logits = arguments.tensor(builder, 0)?;
    let shape = builder.shape(logits);
    let Some((&classes, leading)) = shape.split_last() else {
        return Err(arguments.fault(0, "the logits must be [.., classes], found a scalar"));
    };
    let labels = labels::integers(builder, arguments, 1, "labels")?;
    let of_labels = builder.shape(labels);
    if of_labels[..] != *leading {
        let message =
            format!("the labels must be {leading:?}, one for each row, found {of_labels}");
        return Err(arguments.fault(1, message));
    }
    labels::limit(builder, arguments, 1, labels, classes)?;
    let parts = reduction::Shifted::new(builder, logits, leading.len());
    let chosen = chosen(builder, parts.shifted, labels);
    let mut scalar = ScalarBuilder::default();
    let (sum, chosen_logit) = (scalar.input(0), scalar.input(1));
    let log = scalar.unary(Unary::Log, sum);
    let mut loss = scalar.sub(log, chosen_logit);
    let rows = builder.shape(parts.sum);
    let mut operands = vec![(parts.sum, all_dims(&rows)), (chosen, all_dims(&rows))];
    if labels::are_computed(builder, labels) {
        loss = within_classes(&mut scalar, 2, classes, loss);
        operands.push((labels, all_dims(&rows)));
    }
    let losses = map(builder, rows, &operands, &scalar.finish(loss));
    Ok(Argument::Tensor(reduction::mean_to(builder, losses, &[])))
}

/// Returns a number where the label of an input is a class, else NaN.
fn within_classes(it: &mut ScalarBuilder, labels: u8, classes: usize, x: Register) -> Register {
    let last = i32::try_from(classes - 1).expect("extents are below 2^31");
    let (label, zero, last) =
        (it.integer(labels), it.integer_constant(0), it.integer_constant(last));
    let (is_below, is_above) = (it.greater(zero, label), it.greater(label, last));
    let (is_outside, nan) = (it.add(is_below, is_above), it.constant(f64::NAN));
    it.select(is_outside, nan, x)
}

/// Returns the element of each row that its label selects: the sum over the row of the elements
/// whose index equals the label.
fn chosen(builder: &mut Builder, rows: Value, labels: Value) -> Value {
    let shape = builder.shape(rows);
    let last = shape.len() - 1;
    let index = builder.graph.add(Iota::new(shape[last]).into(), &[]);
    let mut scalar = ScalarBuilder::default();
    let (x, label, index_of_x, zero) =
        (scalar.input(0), scalar.integer(1), scalar.integer(2), scalar.constant(0.0));
    let is_chosen = scalar.equal(label, index_of_x);
    let result = scalar.select(is_chosen, x, zero);
    let kept: Vec<FactorId> = (0..last).map(factor_id).collect();
    let operands =
        [(rows, all_dims(&shape)), (labels, kept.clone()), (index, vec![factor_id(last)])];
    let masked = map(builder, shape, &operands, &scalar.finish(result));
    reduction::reduce(builder, masked, Combine::Sum, &kept)
}

/// Returns the mean of a function of each element and its target.
fn mean_of(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    program: impl Fn(&mut ScalarBuilder, Register, Register) -> Register,
) -> Result<Argument, CallDiagnostic> {
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
fn huber(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let delta = positive(arguments, 2)?;
    mean_of(builder, arguments, |it, x, t| huber_of(it, x, t, delta))
}

// The same divided by beta. Source: Girshick 2015.
fn smooth_l1(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let beta = positive(arguments, 2)?;
    mean_of(builder, arguments, |it, x, t| {
        let huber = huber_of(it, x, t, beta);
        it.scale(huber, 1.0 / beta)
    })
}

fn positive(arguments: &Arguments<'_>, position: usize) -> Result<f64, CallDiagnostic> {
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

// log(1 + e^x) - t x, with log(1 + e^x) = m + log(e^-m + e^(x - m)) and m = max(x, 0), so that no
// exponential overflows. m is a constant for the gradient, which is therefore sigmoid(x) - t
// everywhere.
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
