//! Losses of two classes: each element is a logit or a probability, and its target is in `0..=1`.

use soybean_plan::{Binary, Combine, NumberRange, Register, Unary};

use super::{
    Arguments, Row, SampleArgument, activation, arithmetic,
    broadcast::{Operand, broadcast, broadcast_shape},
    cross_entropy::{Reduction, reduction_of},
    loss::{mean_of, same_shapes},
    reduction,
};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    scalar::ScalarBuilder,
};

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "binary_cross_entropy_with_logits",
        doc: "The mean of `-t log(s) - (1 - t) log(1 - s)` with `s = sigmoid(x)`.",
        arguments: &["input", "target"],
        build: |builder, arguments| mean_of(builder, arguments, binary_cross_entropy),
        samples: &[&[TENSOR, TENSOR], &[LONG, LONG]],
    },
    Row {
        name: "weighted_binary_cross_entropy_with_logits",
        doc: "`binary_cross_entropy_with_logits` with PyTorch's options: a `weight` of each loss and a `pos_weight` of targets 1, both numbers or tensors that broadcast, and a `reduction` that is `\"mean\"`, `\"sum\"` or `\"none\"`.",
        arguments: &["input", "target", "weight", "reduction", "pos_weight"],
        build: weighted_binary_cross_entropy,
        samples: &[
            &[TENSOR, SHARES, ONE, MEAN, SampleArgument::positive(&[6])],
            &[TENSOR, SHARES, SampleArgument::positive(&[4, 1]), NONE, SampleArgument::Float(2.5)],
        ],
    },
    Row {
        name: "binary_cross_entropy",
        doc: "The mean of `-t log(x) - (1 - t) log(1 - x)`, whose logarithms are at least -100.",
        arguments: &["input", "target"],
        build: |builder, arguments| mean_of(builder, arguments, of_probabilities),
        samples: &[&[PROBABILITIES, SHARES]],
    },
    Row {
        name: "sigmoid_focal_loss",
        doc: "The mean of `binary_cross_entropy_with_logits` times `(1 - p)^gamma`, with `p` the probability of the target, and times `alpha` for targets 1 and `1 - alpha` for targets 0.",
        arguments: &["input", "target", "alpha", "gamma"],
        build: focal,
        samples: &[
            &[TENSOR, SHARES, SampleArgument::Float(0.25), SampleArgument::Integer(2)],
            &[TENSOR, SHARES, SampleArgument::Float(0.5), SampleArgument::Float(1.5)],
        ],
    },
];

const TENSOR: SampleArgument = SampleArgument::tensor(&[4, 6]);
const LONG: SampleArgument = SampleArgument::tensor(&[3, 1, 5]);
const ONE: SampleArgument = SampleArgument::Integer(1);
const MEAN: SampleArgument = SampleArgument::Text("mean");
const NONE: SampleArgument = SampleArgument::Text("none");
const PROBABILITIES: SampleArgument =
    SampleArgument::Tensor { shape: &[4, 6], low: 0.1, high: 0.9 };
const SHARES: SampleArgument = SampleArgument::Tensor { shape: &[4, 6], low: 0.0, high: 1.0 };

// log(1 + e^x) - t x
fn binary_cross_entropy(it: &mut ScalarBuilder, x: Register, t: Register) -> Register {
    let (softplus, product) = (activation::softplus(it, x), it.mul(t, x));
    it.sub(softplus, product)
}

// w ((1 - t) x + (1 + (p - 1) t) log(1 + e^-x)), with p the weight of targets 1.
fn weighted_binary_cross_entropy(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let [input, target] = same_shapes(builder, arguments, ["", "the target"])?;
    let reduction = reduction_of(arguments, 3)?;
    let operands = [
        (0, Operand::Tensor(input)),
        (1, Operand::Tensor(target)),
        (2, arguments.operand(builder, 2)?),
        (4, arguments.operand(builder, 4)?),
    ];
    let shape = builder.shape(input);
    for (position, operand) in &operands[2..] {
        if let Operand::Tensor(weight) = operand
            && broadcast_shape(&builder.shape(*weight), &shape) != Some(shape)
        {
            let found = builder.shape(*weight);
            let message = format!("weights must broadcast to the input's {shape}, found {found}");
            return Err(arguments.fault(*position, message));
        }
    }
    let losses = broadcast(builder, arguments, &operands, |it, x| {
        let [x, t, weight, positive] = [x[0], x[1], x[2], x[3]];
        let (negative, one) = (it.unary(Unary::Negate, x), it.constant(1.0));
        let (softplus, rest) = (activation::softplus(it, negative), it.sub(one, t));
        let (more, of_zeros) = (it.sub(positive, one), it.mul(rest, x));
        let more = it.mul(more, t);
        let scale = it.add(more, one);
        let of_all = it.mul(scale, softplus);
        let loss = it.add(of_zeros, of_all);
        it.mul(weight, loss)
    })?;
    let Argument::Tensor(value) = losses else { return Ok(losses) };
    Ok(match reduction {
        Reduction::Mean => Argument::Tensor(reduction::mean_to(builder, value, &[])),
        Reduction::Sum => Argument::Tensor(reduction::reduce(builder, value, Combine::Sum, &[])),
        Reduction::None => losses,
    })
}

// -t l(x) - (1 - t) l(1 - x), with l(x) = max(log(x), -100), whose derivative by x is that of
// PyTorch: (x - t) / max(x (1 - x), 1e-12). So probabilities that are wrong by all are corrected.
fn of_probabilities(it: &mut ScalarBuilder, x: Register, t: Register) -> Register {
    let (one, least, constant) = (it.constant(1.0), it.constant(-100.0), it.detach(x));
    let complements = [it.sub(one, constant), it.sub(one, t)];
    let terms = [(constant, t), (complements[0], complements[1])].map(|(x, t)| {
        let logarithm = it.unary(Unary::Log, x);
        let limited = it.binary(Binary::Maximum, logarithm, least);
        it.mul(t, limited)
    });
    let sum = it.add(terms[0], terms[1]);
    let (spread, least) = (it.mul(constant, complements[0]), it.constant(1e-12));
    let spread = it.binary(Binary::Maximum, spread, least);
    let (miss, nothing) = (it.sub(constant, t), it.sub(x, constant));
    let slope = it.div(miss, spread);
    let (slope, loss) = (it.detach(slope), it.unary(Unary::Negate, sum));
    let nothing = it.mul(nothing, slope);
    it.add(loss, nothing)
}

// a_t (1 - p_t)^gamma l, with l the binary cross-entropy, 1 - p_t = s (1 - t) + (1 - s) t, s =
// sigmoid(x), and a_t = alpha t + (1 - alpha) (1 - t). The power is of no 0, where its slope may be
// infinite. Source: Lin et al. 2017, torchvision.
fn focal(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let alpha = arguments.number_in(2, NumberRange::SHARE)?;
    let gamma = arguments.number_in(3, NumberRange::NON_NEGATIVE)?;
    mean_of(builder, arguments, |it, x, t| {
        let (loss, one) = (binary_cross_entropy(it, x, t), it.constant(1.0));
        let (negative, rest) = (it.unary(Unary::Negate, x), it.sub(one, t));
        let (sigmoid, of_rest) = (it.unary(Unary::Sigmoid, x), it.unary(Unary::Sigmoid, negative));
        let (of_zero, of_one) = (it.mul(sigmoid, rest), it.mul(of_rest, t));
        let (sum, tiny) = (it.add(of_zero, of_one), it.constant(f64::from(f32::MIN_POSITIVE)));
        let miss = it.binary(Binary::Maximum, sum, tiny);
        let focus = arithmetic::power(it, miss, gamma);
        let (of_one, of_zero) = (it.scale(t, alpha), it.scale(rest, 1.0 - alpha));
        let (weight, focused) = (it.add(of_one, of_zero), it.mul(focus, loss));
        it.mul(weight, focused)
    })
}
