//! Losses of classes: scalars, or one number for each label.

use soybean_plan::{Combine, NumberRange, Register, Shape, Unary};

use super::{Arguments, Row, SampleArgument, broadcast::Operand, labels, map, reduction, softmax};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{elementwise::all_dims, iota::Iota},
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const fn float(value: f64) -> SampleArgument {
    SampleArgument::Float(value)
}

const ROWS: [SampleArgument; 2] =
    [tensor(&[4, 6]), SampleArgument::Labels { shape: &[4], n_classes: 6 }];
const SEQUENCES: [SampleArgument; 2] =
    [tensor(&[2, 3, 4]), SampleArgument::Labels { shape: &[2, 3], n_classes: 4 }];

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "cross_entropy",
        doc: "The mean of `-log(softmax(logits)[label])` over logits `[.., classes]` and labels `[..]`. Computed labels out of range make it NaN.",
        arguments: &["logits", "labels"],
        build: cross_entropy,
        samples: &[&ROWS, &SEQUENCES],
    },
    Row {
        name: "cross_entropy_with",
        doc: "`cross_entropy` with PyTorch's options: a number or `[classes]` as `weight`, labels `ignore_index` without a loss, a `reduction` that is `\"mean\"`, `\"sum\"` or `\"none\"`, and `label_smoothing`.",
        arguments: &["logits", "labels", "weight", "ignore_index", "reduction", "label_smoothing"],
        build: cross_entropy_with,
        samples: &[
            &[
                ROWS[0],
                ROWS[1],
                SampleArgument::positive(&[6]),
                SampleArgument::Integer(5),
                SampleArgument::Text("mean"),
                float(0.1),
            ],
            &[
                SEQUENCES[0],
                SEQUENCES[1],
                float(1.0),
                SampleArgument::Integer(1),
                SampleArgument::Text("none"),
                SampleArgument::Integer(0),
            ],
            &[
                ROWS[0],
                ROWS[1],
                float(1.0),
                SampleArgument::Integer(-100),
                SampleArgument::Text("sum"),
                float(0.25),
            ],
        ],
    },
    Row {
        name: "nll_loss",
        doc: "The mean of `-log_probabilities[label]` over `[.., classes]` and labels `[..]`. Computed labels out of range make it NaN.",
        arguments: &["log_probabilities", "labels"],
        build: nll_loss,
        samples: &[&ROWS, &SEQUENCES],
    },
];

/// The operands of a loss of classes.
struct Classes {
    /// `[.., classes]`
    rows: Value,
    /// `[..]`
    labels: Value,
    /// The shape of the labels.
    leading: Shape,
    n_classes: usize,
}

/// Reads the logits and the labels; labels of the batch are classes, or those without a loss.
fn operands(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    ignored: Option<i32>,
) -> Result<Classes, CallDiagnostic> {
    let rows = arguments.tensor(builder, 0)?;
    let shape = builder.shape(rows);
    let Some((&n_classes, leading)) = shape.split_last() else {
        return Err(arguments.fault(0, "the logits must be [.., classes], found a scalar"));
    };
    let labels = labels::integers(builder, arguments, 1, "labels")?;
    let of_labels = builder.shape(labels);
    if of_labels[..] != *leading {
        let message =
            format!("the labels must be {leading:?}, one for each row, found {of_labels}");
        return Err(arguments.fault(1, message));
    }
    labels::limit_but(builder, arguments, 1, labels, n_classes, ignored)?;
    Ok(Classes { rows, labels, leading: of_labels, n_classes })
}

// mean over n of log(sum over c of e^(x[n, c] - m[n])) - (x[n, y[n]] - m[n]), with m the maximum of
// each row
fn cross_entropy(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let classes = operands(builder, arguments, None)?;
    let parts = softmax::Shifted::new(builder, classes.rows, classes.leading.len());
    let chosen = classes.chosen(builder, parts.shifted, &all_dims(&builder.shape(classes.rows)));
    let losses = classes.losses(builder, &[parts.sum, chosen], None, |it, x| {
        let log = it.unary(Unary::Log, x[0]);
        it.sub(log, x[1])
    });
    Ok(Argument::Tensor(reduction::mean_to(builder, losses, &[])))
}

fn nll_loss(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let classes = operands(builder, arguments, None)?;
    let chosen = classes.chosen(builder, classes.rows, &all_dims(&builder.shape(classes.rows)));
    let losses = classes.losses(builder, &[chosen], None, |it, x| it.unary(Unary::Negate, x[0]));
    Ok(Argument::Tensor(reduction::mean_to(builder, losses, &[])))
}

/// What becomes of the losses of all labels.
pub(super) enum Reduction {
    Mean,
    Sum,
    None,
}

pub(super) fn reduction_of(
    arguments: &Arguments<'_>,
    position: usize,
) -> Result<Reduction, CallDiagnostic> {
    match arguments.text(position)? {
        "mean" => Ok(Reduction::Mean),
        "sum" => Ok(Reduction::Sum),
        "none" => Ok(Reduction::None),
        other => {
            let wanted = "`\"mean\"`, `\"sum\"` or `\"none\"`";
            Err(arguments.expected_number(position, wanted, format!("{other:?}")))
        }
    }
}

// For a label y that is not ignored, with l[c] = -log(softmax(x)[c]):
//     (1 - s) w[y] l[y] + s / C sum over c of w[c] l[c]
// The mean is the sum of these divided by the sum of w[y]. Source: PyTorch's cross_entropy.
fn cross_entropy_with(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let ignored = i32::try_from(arguments.integer(3)?).expect("integers are limited to 32 bits");
    let reduction = reduction_of(arguments, 4)?;
    let smoothing = arguments.number_in(5, NumberRange::SHARE)?;
    let classes = operands(builder, arguments, Some(ignored))?;
    let weight = class_weights(builder, arguments, classes.n_classes)?;
    let parts = softmax::Shifted::new(builder, classes.rows, classes.leading.len());
    let logarithms = parts.log_softmax(builder);
    let chosen = classes.chosen(builder, logarithms, &all_dims(&builder.shape(classes.rows)));
    let last = factor_id(classes.leading.len());
    let of_label = match weight {
        Operand::Number(_) => None,
        Operand::Tensor(weight) => Some(classes.chosen(builder, weight, &[last])),
    };
    let others = (smoothing > 0.0).then(|| classes.weighted_sum(builder, logarithms, weight));
    let share = smoothing / classes.n_classes as f64;
    let operands: Vec<Value> = [Some(chosen), of_label, others].into_iter().flatten().collect();
    let weight_of = |it: &mut ScalarBuilder, x: &[Register]| match weight {
        Operand::Number(number) => it.constant(number),
        Operand::Tensor(_) => x[1],
    };
    let losses = classes.losses(builder, &operands, Some(ignored), |it, x| {
        let weight = weight_of(it, x);
        let weighted = it.mul(weight, x[0]);
        let of_chosen = it.scale(weighted, smoothing - 1.0);
        match others {
            Some(_) => {
                let of_others = it.scale(x[x.len() - 1], share);
                it.sub(of_chosen, of_others)
            }
            None => of_chosen,
        }
    });
    if matches!(reduction, Reduction::None) {
        return Ok(Argument::Tensor(losses));
    }
    let sum = reduction::reduce(builder, losses, Combine::Sum, &[]);
    if matches!(reduction, Reduction::Sum) {
        return Ok(Argument::Tensor(sum));
    }
    let weights = classes.losses(builder, &operands, Some(ignored), weight_of);
    let total = reduction::reduce(builder, weights, Combine::Sum, &[]);
    let mut it = ScalarBuilder::default();
    let (x, y) = (it.input(0), it.input(1));
    let mean = it.div(x, y);
    let operands = [(sum, Vec::new()), (total, Vec::new())];
    Ok(Argument::Tensor(map(builder, Shape::default(), &operands, &it.finish(mean))))
}

fn class_weights(
    builder: &Builder,
    arguments: &Arguments<'_>,
    n_classes: usize,
) -> Result<Operand, CallDiagnostic> {
    let weight = arguments.operand(builder, 2)?;
    if let Operand::Tensor(value) = weight
        && builder.shape(value)[..] != [n_classes]
    {
        let message = format!(
            "the weight must be a number or [{n_classes}], one for each class, found {}",
            builder.shape(value)
        );
        return Err(arguments.fault(2, message));
    }
    Ok(weight)
}

impl Classes {
    /// Returns the element of each row that its label selects, or 0 if there is none: the sum over
    /// the row of the elements whose index equals the label. `values` have these dims of the rows.
    fn chosen(&self, builder: &mut Builder, values: Value, dims: &[FactorId]) -> Value {
        let shape = builder.shape(self.rows);
        let last = self.leading.len();
        let index = builder.graph.add(Iota::new(shape[last]).into(), &[]);
        let mut scalar = ScalarBuilder::default();
        let (x, label, index_of_x, zero) =
            (scalar.input(0), scalar.integer(1), scalar.integer(2), scalar.constant(0.0));
        let is_chosen = scalar.equal(label, index_of_x);
        let result = scalar.select(is_chosen, x, zero);
        let kept = all_dims(&self.leading);
        let operands =
            [(values, dims.to_vec()), (self.labels, kept.clone()), (index, vec![factor_id(last)])];
        let masked = map(builder, shape, &operands, &scalar.finish(result));
        reduction::reduce(builder, masked, Combine::Sum, &kept)
    }

    /// Returns the sum of each row, weighted by class.
    fn weighted_sum(&self, builder: &mut Builder, rows: Value, weight: Operand) -> Value {
        let shape = builder.shape(rows);
        let mut operands = vec![(rows, all_dims(&shape))];
        let mut it = ScalarBuilder::default();
        let x = it.input(0);
        let weight = match weight {
            Operand::Number(number) => it.constant(number),
            Operand::Tensor(weight) => {
                operands.push((weight, vec![factor_id(self.leading.len())]));
                it.input(1)
            }
        };
        let product = it.mul(x, weight);
        let products = map(builder, shape, &operands, &it.finish(product));
        reduction::reduce(builder, products, Combine::Sum, &all_dims(&self.leading))
    }

    /// Returns a function of numbers of each label: 0 where the label is ignored, and NaN where it
    /// is no class, which the batch's check excludes unless the model computes the labels.
    fn losses(
        &self,
        builder: &mut Builder,
        numbers: &[Value],
        ignored: Option<i32>,
        program: impl Fn(&mut ScalarBuilder, &[Register]) -> Register,
    ) -> Value {
        let mut it = ScalarBuilder::default();
        let inputs: Vec<Register> = (0..numbers.len()).map(|at| it.input(factor_id(at))).collect();
        let mut loss = program(&mut it, &inputs);
        let label = factor_id(numbers.len());
        if labels::are_computed(builder, self.labels) {
            loss = within_classes(&mut it, label, self.n_classes, loss);
        }
        if let Some(ignored) = ignored {
            let (label, ignored) = (it.integer(label), it.integer_constant(ignored));
            let (is_ignored, zero) = (it.equal(label, ignored), it.constant(0.0));
            loss = it.select(is_ignored, zero, loss);
        }
        let values = numbers.iter().chain([&self.labels]);
        let space = all_dims(&self.leading);
        let operands: Vec<_> = values.map(|it| (*it, space.clone())).collect();
        map(builder, self.leading, &operands, &it.finish(loss))
    }
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
