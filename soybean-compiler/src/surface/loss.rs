//! Losses of numbers: scalars, each the mean over the batch, and similarities.

use soybean_plan::{Binary, Combine, DType, NumberRange, Register, Shape, Unary};

use super::{
    Arguments, Row, SampleArgument, activation,
    broadcast::Operand,
    conversion, map, norm,
    reduction::{self, Rescaled},
};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::elementwise::all_dims,
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
    value::Value,
};

pub(super) const TABLE: &[Row] = &[
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
        name: "kl_div",
        doc: "The sum of `t (log(t) - x)` over log-probabilities `x` and probabilities `t`, divided by the extent of dim 0.",
        arguments: &["input", "target"],
        build: kl_div,
        samples: &[&[PAIR[0], SampleArgument::positive(&[4, 6])]],
    },
    Row {
        name: "per",
        doc: "A sum divided by a count. Steps that share an update (`accumulate`) add up both.",
        arguments: &["sum", "count"],
        build: per,
        samples: &[
            &[SampleArgument::tensor(&[]), SampleArgument::positive(&[])],
            &[SampleArgument::tensor(&[]), SampleArgument::Float(2.5)],
        ],
    },
    Row {
        name: "cosine_similarity",
        doc: "The cosine of the angle between vectors along a dim, whose lengths count as at least `eps`.",
        arguments: &["input", "other", "dim", "eps"],
        build: cosine_similarity,
        samples: &[
            &[PAIR[0], PAIR[1], SampleArgument::Integer(-1), SampleArgument::Float(1e-8)],
            &[
                SampleArgument::tensor(&[3, 5, 2]),
                SampleArgument::tensor(&[3, 5, 2]),
                SampleArgument::Integer(1),
                SampleArgument::Float(1e-8),
            ],
        ],
    },
    Row {
        name: "cosine_embedding_loss",
        doc: "The mean of `1 - c` where the target is 1 and of `max(c - margin, 0)` where it is -1, with `c` the cosine of the angle between rows.",
        arguments: &["input", "other", "target", "margin"],
        build: cosine_embedding,
        samples: &[&[PAIR[0], PAIR[1], ZEROS_AND_ONES, SampleArgument::Float(-0.5)]],
    },
    Row {
        name: "triplet_margin_loss",
        doc: "The mean of `max(d(x, positive) - d(x, negative) + margin, 0)`, with `d` the distance of rows.",
        arguments: &["input", "positive", "negative", "margin"],
        build: triplet_margin,
        samples: &[&[PAIR[0], PAIR[1], PAIR[1], SampleArgument::Float(5.0)]],
    },
];

const PAIR: [SampleArgument; 2] =
    [SampleArgument::tensor(&[4, 6]), SampleArgument::tensor(&[4, 6])];
// Targets of -1 are among the golden values.
const ZEROS_AND_ONES: SampleArgument = SampleArgument::Labels { shape: &[4], n_classes: 2 };
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

/// Returns the mean of a function of each element and its target.
pub(super) fn mean_of(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    program: impl Fn(&mut ScalarBuilder, Register, Register) -> Register,
) -> Result<Argument, CallDiagnostic> {
    let [input, target] = same_shapes(builder, arguments, ["", "the target"])?;
    let losses = map_all(builder, &[input, target], |it, x| program(it, x[0], x[1]));
    Ok(Argument::Tensor(reduction::mean_to(builder, losses, &[])))
}

/// Returns the first tensors among the arguments, all of one shape.
pub(super) fn same_shapes<const N: usize>(
    builder: &Builder,
    arguments: &Arguments<'_>,
    names: [&str; N],
) -> Result<[Value; N], CallDiagnostic> {
    let first = arguments.tensor(builder, 0)?;
    let mut tensors = [first; N];
    for position in 1..N {
        tensors[position] = arguments.tensor(builder, position)?;
        let (shape, other) = (builder.shape(first), builder.shape(tensors[position]));
        if shape != other {
            let name = names[position];
            let message = format!("{name} must have the input's shape {shape}, found {other}");
            return Err(arguments.fault(position, message));
        }
    }
    Ok(tensors)
}

/// Adds a map over tensors of one shape.
fn map_all(
    builder: &mut Builder,
    values: &[Value],
    program: impl FnOnce(&mut ScalarBuilder, &[Register]) -> Register,
) -> Value {
    let shape = builder.shape(values[0]);
    let mut it = ScalarBuilder::default();
    let inputs: Vec<Register> = (0..values.len()).map(|at| it.input(factor_id(at))).collect();
    let result = program(&mut it, &inputs);
    let operands: Vec<_> = values.iter().map(|it| (*it, all_dims(&shape))).collect();
    map(builder, shape, &operands, &it.finish(result))
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
    let delta = arguments.number_in(2, NumberRange::POSITIVE)?;
    mean_of(builder, arguments, |it, x, t| huber_of(it, x, t, delta))
}

// The same divided by beta. Source: Girshick 2015.
fn smooth_l1(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let beta = arguments.number_in(2, NumberRange::POSITIVE)?;
    mean_of(builder, arguments, |it, x, t| {
        let huber = huber_of(it, x, t, beta);
        it.scale(huber, 1.0 / beta)
    })
}

fn huber_of(it: &mut ScalarBuilder, x: Register, t: Register, delta: f64) -> Register {
    let square = mse(it, x, t);
    let (near, distance) = (it.scale(square, 0.5), distance(it, x, t));
    let beyond = it.offset(distance, -delta / 2.0);
    let (far, limit) = (it.scale(beyond, delta), it.constant(delta));
    let is_far = it.binary(Binary::Greater, distance, limit);
    it.select(is_far, far, near)
}

// sum of t (log(t) - x) / n, where 0 log(0) = 0. Source: PyTorch's `kl_div` with `batchmean`.
fn kl_div(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let [input, target] = same_shapes(builder, arguments, ["", "the target"])?;
    let Some(&n) = builder.shape(input).first() else {
        return Err(arguments.fault(0, "takes tensors of at least 1 dim, found a scalar"));
    };
    let terms = map_all(builder, &[input, target], |it, x| {
        let (zero, one) = (it.constant(0.0), it.constant(1.0));
        let is_zero = it.equal(x[1], zero);
        let positive = it.select(is_zero, one, x[1]);
        let logarithm = it.unary(Unary::Log, positive);
        let difference = it.sub(logarithm, x[0]);
        it.mul(x[1], difference)
    });
    let sum = reduction::reduce(builder, terms, Combine::Sum, &[]);
    Ok(Argument::Tensor(map_all(builder, &[sum], |it, x| {
        let n = it.constant(n as f64);
        it.div(x[0], n)
    })))
}

// sum / count, one map: a denominator that `denominator.rs` finds by the name of the operator.
fn per(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let sum = arguments.tensor(builder, 0)?;
    let count = arguments.operand(builder, 1)?;
    let mut operands = vec![(sum, Vec::new())];
    let mut it = ScalarBuilder::default();
    let (dividend, divisor) = (
        it.input(0),
        match count {
            Operand::Number(number) => it.constant(number),
            Operand::Tensor(count) => {
                operands.push((count, Vec::new()));
                it.input(1)
            }
        },
    );
    for (position, (value, _)) in operands.iter().enumerate() {
        let shape = builder.shape(*value);
        if !shape.is_empty() {
            return Err(arguments.fault(position, format!("takes scalars, found {shape}")));
        }
    }
    let quotient = it.div(dividend, divisor);
    Ok(Argument::Tensor(map(builder, Shape::default(), &operands, &it.finish(quotient))))
}

/// The sums over a dim of `x y`, `x^2` and `y^2`, where both tensors are rescaled.
struct Products {
    sums: [Value; 3],
    scales: [Value; 2],
}

impl Products {
    fn new(
        builder: &mut Builder,
        tensors: [Value; 2],
        dim: usize,
        rescaled: fn(&mut Builder, Value, &[FactorId]) -> Rescaled,
    ) -> Self {
        let dims = 0..builder.shape(tensors[0]).len();
        let kept: Vec<FactorId> = dims.filter(|&it| it != dim).map(factor_id).collect();
        let [x, y] = tensors.map(|it| rescaled(builder, it, &kept));
        let pairs = [[x.value, y.value], [x.value; 2], [y.value; 2]];
        let sums = pairs.map(|pair| {
            let products = map_all(builder, &pair, |it, x| it.mul(x[0], x[1]));
            reduction::reduce(builder, products, Combine::Sum, &kept)
        });
        Self { sums, scales: [x.scale, y.scale] }
    }

    /// Returns a map of the cosine and of other tensors. `length` makes a length of the sum of
    /// squares and the scale; one of both may be very large.
    fn cosine(
        &self,
        builder: &mut Builder,
        others: &[Value],
        length: impl Fn(&mut ScalarBuilder, Register, Register) -> Register,
        result: impl Fn(&mut ScalarBuilder, Register, &[Register]) -> Register,
    ) -> Value {
        let operands = [&self.sums[..], &self.scales, others].concat();
        map_all(builder, &operands, |it, x| {
            let cosine =
                [(x[1], x[3]), (x[2], x[4])].into_iter().fold(x[0], |rest, (sum, scale)| {
                    let scale = it.detach(scale);
                    let length = length(it, sum, scale);
                    it.div(rest, length)
                });
            result(it, cosine, &x[5..])
        })
    }
}

// x y / (max(|x|, eps) max(|y|, eps)); the roots are of numbers above 0, so that the gradient by
// vectors of zeros is finite.
fn cosine_similarity(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let tensors = same_shapes(builder, arguments, ["", "the other tensor"])?;
    let dim = arguments.dim(2, builder.shape(tensors[0]).len())?;
    let eps = norm::least_length(arguments, 3)?;
    let products = Products::new(builder, tensors, dim, Rescaled::new);
    let length = |it: &mut ScalarBuilder, sum, scale| {
        // Less than the square of a rescaled number other than 0.
        let least = it.constant(2.0_f64.powi(-101));
        let limited = it.binary(Binary::Maximum, sum, least);
        let (root, eps) = (it.unary(Unary::Sqrt, limited), it.scale(scale, eps));
        it.binary(Binary::Maximum, root, eps)
    };
    Ok(Argument::Tensor(products.cosine(builder, &[], length, |_, cosine, _| cosine)))
}

// The squares of the lengths are increased by 1e-12, as in PyTorch.
fn cosine_embedding(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let tensors = same_shapes(builder, arguments, ["", "the other tensor"])?;
    let rows = row_shape(builder, arguments, tensors[0])?;
    let margin = arguments.number_in(3, NumberRange::COSINE)?;
    let Argument::Tensor(target) = *arguments.get(2) else {
        return Err(arguments.expected(2, "a tensor"));
    };
    let of_target = builder.shape(target);
    if of_target != rows {
        let message = format!("the target must be {rows}, one for each row, found {of_target}");
        return Err(arguments.fault(2, message));
    }
    let target = conversion::converted(builder, target, DType::F32);
    // Next to 1e-12, squares of small numbers are as good as 0.
    let products = Products::new(builder, tensors, rows.len(), Rescaled::down);
    let length = |it: &mut ScalarBuilder, sum, scale| {
        let term = it.scale(scale, 1e-12);
        let term = it.mul(term, scale);
        let sum = it.add(sum, term);
        it.unary(Unary::Sqrt, sum)
    };
    let losses = products.cosine(builder, &[target], length, |it, cosine, others| {
        let (one, zero) = (it.constant(1.0), it.constant(0.0));
        let (near, beyond) = (it.sub(one, cosine), it.offset(cosine, -margin));
        let (far, minus_one) = (it.unary(Unary::Relu, beyond), it.constant(-1.0));
        let (is_far, is_near) = (it.equal(others[0], minus_one), it.equal(others[0], one));
        let of_far = it.select(is_far, far, zero);
        it.select(is_near, near, of_far)
    });
    Ok(Argument::Tensor(reduction::mean_to(builder, losses, &[])))
}

/// Returns a shape without its last dim.
fn row_shape(
    builder: &Builder,
    arguments: &Arguments<'_>,
    value: Value,
) -> Result<Shape, CallDiagnostic> {
    match builder.shape(value).split_last() {
        Some((_, rows)) => Ok(Shape::new(rows)),
        None => Err(arguments.fault(0, "takes tensors of at least 1 dim, found a scalar")),
    }
}

// d(x, y) = |x - y + 1e-6|. Source: PyTorch's triplet_margin_loss with p = 2.
fn triplet_margin(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let [input, near, far] =
        same_shapes(builder, arguments, ["", "the positive tensor", "the negative tensor"])?;
    let rows = row_shape(builder, arguments, input)?;
    let margin = arguments.number_in(3, NumberRange::NON_NEGATIVE)?;
    let lengths = [near, far].map(|other| {
        let distances = map_all(builder, &[input, other], |it, x| {
            let difference = it.sub(x[0], x[1]);
            it.offset(difference, 1e-6)
        });
        reduction::length(builder, distances, &all_dims(&rows))
    });
    let losses = map_all(builder, &lengths, |it, x| {
        let (near, far) = (x[0], x[1]);
        let difference = it.sub(near, far);
        let loss = it.offset(difference, margin);
        it.unary(Unary::Relu, loss)
    });
    Ok(Argument::Tensor(reduction::mean_to(builder, losses, &[])))
}
