//! Normalization. Variances are taken of what is already less its mean, so that nothing cancels.

use soybean_plan::{Binary, Combine, ImageLayout, NumberRange, PoolingForm, Shape, Unary};

use super::{Arguments, Row, SampleArgument, activation, layout, map, map_one, reduction, slicing};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{elementwise::all_dims, pad::Pad, pool::Pool},
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

const fn integer(value: i64) -> SampleArgument {
    SampleArgument::Integer(value)
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "layer_norm",
        doc: "Normalized over the last dim, times `weight`, plus `bias`.",
        arguments: &["input", "weight", "bias", "eps"],
        build: layer_norm,
        samples: &[
            &[tensor(&[4, 6]), tensor(&[6]), tensor(&[6]), float(0.1)],
            &[tensor(&[3, 1, 5]), tensor(&[5]), tensor(&[5]), float(0.01)],
            &[tensor(&[3, 1]), tensor(&[1]), tensor(&[1]), integer(1)],
        ],
    },
    Row {
        name: "rms_norm",
        doc: "Divided by its root mean square over the last dim, times `weight`.",
        arguments: &["input", "weight", "eps"],
        build: rms_norm,
        samples: &[
            &[tensor(&[4, 6]), tensor(&[6]), float(0.1)],
            &[tensor(&[5]), tensor(&[5]), float(0.01)],
        ],
    },
    Row {
        name: "normalize",
        doc: "Divided by its length along a dim, which counts as at least `eps`.",
        arguments: &["input", "dim", "eps"],
        build: normalize,
        samples: &[
            &[tensor(&[4, 6]), integer(-1), float(1e-8)],
            &[tensor(&[3, 4, 2]), integer(1), float(2.0)],
        ],
    },
    Row {
        name: "local_response_norm",
        doc: "Divided by `(k + alpha mean(x^2))^beta`, the mean over `size` neighboring channels of `[n, c, ..]`.",
        arguments: &["input", "size", "alpha", "beta", "k"],
        build: local_response_norm,
        samples: &[
            &[tensor(&[2, 6, 3]), integer(3), float(0.5), float(0.75), float(2.0)],
            &[tensor(&[2, 5, 2, 2]), integer(4), float(1.5), float(0.5), integer(1)],
            &[tensor(&[4, 2]), integer(5), float(0.5), integer(2), float(0.5)],
        ],
    },
    Row {
        name: "group_norm",
        doc: "Normalized over each group of channels of `[n, c, ..]`, times `weight`, plus `bias`.",
        arguments: &["input", "n_groups", "weight", "bias", "eps"],
        build: group_norm,
        samples: &[
            &[tensor(&[4, 6, 3]), integer(2), tensor(&[6]), tensor(&[6]), float(0.1)],
            &[tensor(&[2, 4]), integer(1), tensor(&[4]), tensor(&[4]), float(0.1)],
            &[tensor(&[1, 3, 2, 5]), integer(3), tensor(&[3]), tensor(&[3]), float(0.1)],
        ],
    },
];

// (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dim. Source: Ba et al. 2016.
fn layer_norm(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let (kept, last) = last_dim(builder, arguments, value)?;
    let n = builder.shape(value)[last];
    let weight = vector(builder, arguments, 1, n)?;
    let bias = vector(builder, arguments, 2, n)?;
    let eps = eps(arguments, 3)?;
    let centered = reduction::centered(builder, value, &kept);
    let scaled = Scaled::by_own(builder, centered, kept, eps);
    let dims = vec![factor_id(last)];
    Ok(Argument::Tensor(scaled.build(builder, &[(weight, dims.clone()), (bias, dims)])))
}

// x / sqrt(mean(x^2) + eps) * weight over the last dim. Source: Zhang & Sennrich 2019.
fn rms_norm(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let (kept, last) = last_dim(builder, arguments, value)?;
    let weight = vector(builder, arguments, 1, builder.shape(value)[last])?;
    let scaled = Scaled::by_own(builder, value, kept, eps(arguments, 2)?);
    Ok(Argument::Tensor(scaled.build(builder, &[(weight, vec![factor_id(last)])])))
}

// As layer_norm, over the channels of one group and all dims after the channels, with weight and
// bias for each channel. Source: Wu & He 2018.
//
// Only the means of channels are put into groups, `[n, groups, channels of a group]`. So the input
// can have any layout, and batch, groups and the other dims can be split.
fn group_norm(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    if shape.len() < 2 {
        return Err(
            arguments.fault(0, format!("the input must be [n, channels, ..], found {shape}"))
        );
    }
    let given = arguments.integer(1)?;
    let divides = |n_groups: &usize| *n_groups > 0 && shape[1].is_multiple_of(*n_groups);
    let Some(n_groups) = usize::try_from(given).ok().filter(divides) else {
        let message = format!("`n_groups` must divide the {} channels, found {given}", shape[1]);
        return Err(arguments.fault(1, message));
    };
    let weight = vector(builder, arguments, 2, shape[1])?;
    let bias = vector(builder, arguments, 3, shape[1])?;
    let eps = eps(arguments, 4)?;
    let groups = Shape::new(&[shape[0], n_groups, shape[1] / n_groups]);
    let kept: Vec<FactorId> = vec![0, 1];
    let mean =
        reduction::exact(builder, value, &kept, |builder, it| mean_of_groups(builder, it, groups));
    let centered = reduction::less(builder, value, mean, &kept, |_, mean| mean);
    let squares = reduction::squares(builder, centered);
    let mean_square = mean_of_groups(builder, squares, groups);
    let scaled = Scaled { value: centered, mean_square, kept, eps };
    Ok(Argument::Tensor(scaled.build(builder, &[(weight, vec![1]), (bias, vec![1])])))
}

/// Returns for each image and channel the mean over its group of channels and over all other dims:
/// `[n, c]` of `[n, c, ..]`, with the channels in groups of this shape, `[n, groups, channels]`.
fn mean_of_groups(builder: &mut Builder, value: Value, groups: Shape) -> Value {
    let shape = builder.shape(value);
    let of_channels = match shape.len() {
        2 => value,
        _ => reduction::reduce(builder, value, Combine::Sum, &[0, 1]),
    };
    let of_channels = layout::reshaped(builder, of_channels, groups);
    let of_groups = reduction::reduce(builder, of_channels, Combine::Sum, &[0, 1]);
    let mut it = ScalarBuilder::default();
    let n = shape.n_elements() / (groups[0] * groups[1]);
    let (sum, n) = (it.input(0), it.constant(n as f64));
    let mean = it.div(sum, n);
    let of_channels = map(builder, groups, &[(of_groups, vec![0, 1])], &it.finish(mean));
    layout::reshaped(builder, of_channels, Shape::new(&[groups[0], groups[1] * groups[2]]))
}

// x (k + alpha s / size)^-beta, with s the sum of x^2 over the channels from size / 2 before to
// (size - 1) / 2 after, where missing channels are zeros, as in PyTorch. Source: Krizhevsky et al.
// 2012.
fn local_response_norm(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    let [n, channels, ref rest @ ..] = shape[..] else {
        return Err(
            arguments.fault(0, format!("the input must be [n, channels, ..], found {shape}"))
        );
    };
    let size = arguments.size(1, 1)?;
    let alpha = arguments.number_in(2, NumberRange::NON_NEGATIVE)?;
    let beta = arguments.number_in(3, NumberRange::FINITE)?;
    let k = arguments.number_in(4, NumberRange::POSITIVE)?;
    let mut it = ScalarBuilder::default();
    let x = it.input(0);
    let square = it.mul(x, x);
    let squares = map_one(builder, value, &it.finish(square));
    let image = Shape::new(&[n, 1, channels, rest.iter().product()]);
    let squares = layout::reshaped(builder, squares, image);
    let pool = Pool {
        form: PoolingForm::Sum,
        image,
        window: [size, 1],
        stride: [1, 1],
        padding: [size / 2, 0],
        layout: ImageLayout::ChannelsFirst,
    };
    let sums = builder.graph.add(pool.into(), &[squares]);
    // For even sizes one window more begins within the padding.
    let sums = slicing::windowed(builder, sums, Pad::crop(builder.shape(sums), 2, 0, channels));
    let sums = layout::reshaped(builder, sums, shape);
    let mut it = ScalarBuilder::default();
    let (x, sum) = (it.input(0), it.input(1));
    let mean = it.scale(sum, alpha / size as f64);
    let base = it.offset(mean, k);
    let logarithm = it.unary(Unary::Log, base);
    let exponent = it.scale(logarithm, -beta);
    let factor = it.unary(Unary::Exp, exponent);
    let result = it.mul(x, factor);
    let space = all_dims(&shape);
    let operands = [(value, space.clone()), (sums, space)];
    Ok(Argument::Tensor(map(builder, shape, &operands, &it.finish(result))))
}

/// A tensor that is divided by the root of a mean square, which has some of its dims.
struct Scaled {
    value: Value,
    mean_square: Value,
    kept: Vec<FactorId>,
    eps: f64,
}

impl Scaled {
    /// Returns a tensor that is divided by the root of its mean square over all dims but some.
    fn by_own(builder: &mut Builder, value: Value, kept: Vec<FactorId>, eps: f64) -> Self {
        let squares = reduction::squares(builder, value);
        let mean_square = reduction::mean_to(builder, squares, &kept);
        Self { value, mean_square, kept, eps }
    }

    /// Returns the quotient, times the first and plus the second of the other tensors, if they are
    /// given; each comes with its dims.
    fn build(&self, builder: &mut Builder, others: &[(Value, Vec<FactorId>)]) -> Value {
        let shape = builder.shape(self.value);
        let mut it = ScalarBuilder::default();
        let mean_square = it.input(0);
        let sum = it.offset(mean_square, self.eps);
        let scale = activation::rsqrt(&mut it, sum);
        let scales = map_one(builder, self.mean_square, &it.finish(scale));
        let mut it = ScalarBuilder::default();
        let (x, scale, weight) = (it.input(0), it.input(1), it.input(2));
        let normal = it.mul(x, scale);
        let mut result = it.mul(normal, weight);
        if others.len() == 2 {
            let bias = it.input(3);
            result = it.add(result, bias);
        }
        let mut operands = vec![(self.value, all_dims(&shape)), (scales, self.kept.clone())];
        operands.extend_from_slice(others);
        map(builder, shape, &operands, &it.finish(result))
    }
}

/// Returns all dims but the last, and the last.
fn last_dim(
    builder: &Builder,
    arguments: &Arguments<'_>,
    value: Value,
) -> Result<(Vec<FactorId>, usize), CallDiagnostic> {
    match builder.shape(value).len().checked_sub(1) {
        Some(last) => Ok(((0..last).map(factor_id).collect(), last)),
        None => Err(arguments.fault(0, "takes tensors of at least 1 dim, found a scalar")),
    }
}

pub(super) fn vector(
    builder: &Builder,
    arguments: &Arguments<'_>,
    position: usize,
    extent: usize,
) -> Result<Value, CallDiagnostic> {
    let value = arguments.tensor(builder, position)?;
    let shape = builder.shape(value);
    match shape[..] == [extent] {
        true => Ok(value),
        false => Err(arguments.expected_number(position, &format!("[{extent}]"), shape)),
    }
}

pub(super) fn eps(arguments: &Arguments<'_>, position: usize) -> Result<f64, CallDiagnostic> {
    arguments.number_in(position, NumberRange::NON_NEGATIVE)
}

// x / max(|x|, eps)
fn normalize(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    let (dim, eps) = (arguments.dim(1, shape.len())?, least_length(arguments, 2)?);
    let kept: Vec<FactorId> = (0..shape.len()).filter(|&it| it != dim).map(factor_id).collect();
    let length = reduction::length(builder, value, &kept);
    let mut it = ScalarBuilder::default();
    let (x, length_is, least) = (it.input(0), it.input(1), it.constant(eps));
    let limited = it.binary(Binary::Maximum, length_is, least);
    let result = it.div(x, limited);
    let operands = [(value, all_dims(&shape)), (length, kept)];
    Ok(Argument::Tensor(map(builder, shape, &operands, &it.finish(result))))
}

/// Returns the least length of a vector, whose square is a number of `f32` above 0.
pub(super) fn least_length(
    arguments: &Arguments<'_>,
    position: usize,
) -> Result<f64, CallDiagnostic> {
    arguments.number_in(position, NumberRange::LENGTH)
}
