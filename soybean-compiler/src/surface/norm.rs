//! Normalisation. Variances are taken of what is already less its mean, so that nothing cancels.

use soybean_plan::{Combine, MAX_RANK, Shape};

use super::{Arguments, Row, SampleArgument, activation, layout, map, map_one, reduction};
use crate::{
    builder::{Argument, Builder},
    fault::Fault,
    graph::{Source, Value},
    operators::{by_phase::ByPhase, elementwise::all_dims},
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
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

macro_rules! batch_norm_sample {
    ($input:expr, $channels:expr) => {
        &[
            tensor($input),
            SampleArgument::Buffer { shape: $channels, low: -1.0, high: 1.0 },
            SampleArgument::Buffer { shape: $channels, low: 0.5, high: 2.0 },
            tensor($channels),
            tensor($channels),
            float(0.25),
            float(0.1),
        ]
    };
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "layer_norm",
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
        arguments: &["input", "weight", "eps"],
        build: rms_norm,
        samples: &[
            &[tensor(&[4, 6]), tensor(&[6]), float(0.1)],
            &[tensor(&[5]), tensor(&[5]), float(0.01)],
        ],
    },
    Row {
        name: "batch_norm",
        arguments: &["input", "running_mean", "running_var", "weight", "bias", "momentum", "eps"],
        build: batch_norm,
        samples: &[
            batch_norm_sample!(&[4, 6, 3], &[6]),
            batch_norm_sample!(&[4, 2], &[2]),
            batch_norm_sample!(&[3, 1, 2, 5], &[1]),
        ],
    },
    Row {
        name: "group_norm",
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
fn layer_norm(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let value = arguments.tensor(builder, 0)?;
    let (kept, last) = last_dim(builder, arguments, value)?;
    let n = builder.shape(value)[last];
    let weight = vector(builder, arguments, 1, n)?;
    let bias = vector(builder, arguments, 2, n)?;
    let eps = eps(arguments, 3)?;
    let centered = reduction::centered(builder, value, &kept);
    let scaled = Scaled { value: centered, kept, eps };
    let dims = vec![factor_id(last)];
    Ok(Argument::Tensor(scaled.build(builder, &[(weight, dims.clone()), (bias, dims)])))
}

// x / sqrt(mean(x^2) + eps) * weight over the last dim. Source: Zhang & Sennrich 2019.
fn rms_norm(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let value = arguments.tensor(builder, 0)?;
    let (kept, last) = last_dim(builder, arguments, value)?;
    let weight = vector(builder, arguments, 1, builder.shape(value)[last])?;
    let scaled = Scaled { value, kept, eps: eps(arguments, 2)? };
    Ok(Argument::Tensor(scaled.build(builder, &[(weight, vec![factor_id(last)])])))
}

// (x - mean) / sqrt(var + eps) * weight + bias for each channel: in training with the mean and variance of the batch, which both buffers follow as
// moving means (the variance with correction 1), in evaluation with the buffers. Source: Ioffe & Szegedy 2015.
fn batch_norm(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    if shape.len() < 2 {
        return Err(
            arguments.fault(0, format!("the input must be [n, channels, ..], found {shape}"))
        );
    }
    let channels = shape[1];
    let running_mean = buffer(builder, arguments, 1, channels)?;
    let running_var = buffer(builder, arguments, 2, channels)?;
    let weight = vector(builder, arguments, 3, channels)?;
    let bias = vector(builder, arguments, 4, channels)?;
    let momentum = arguments.number(5)?;
    if !(0.0..=1.0).contains(&momentum) {
        return Err(arguments.expected_number(5, "a number from 0 to 1", momentum));
    }
    let eps = eps(arguments, 6)?;
    let n = shape.n_elements() / channels;
    if n < 2 {
        let message =
            format!("the variance needs more than one element of each channel, found {shape}");
        return Err(arguments.fault(0, message));
    }
    let (mean, var) = batch_statistics(builder, value, n);
    follow(builder, (running_mean, mean), momentum, 1.0);
    follow(builder, (running_var, var), momentum, n as f64 / (n - 1) as f64);
    let mut by_phase = |train, evaluate| builder.graph.add(ByPhase.into(), &[train, evaluate]);
    let (mean, var) = (by_phase(mean, running_mean), by_phase(var, running_var));
    Ok(Argument::Tensor(normalized_channels(builder, value, [mean, var, weight, bias], eps)))
}

/// The mean and the variance of each channel, over `n` elements.
fn batch_statistics(builder: &mut Builder, value: Value, n: usize) -> (Value, Value) {
    let (shape, kept) = (builder.shape(value), vec![1]);
    let mean = reduction::mean_to(builder, value, &kept);
    let mut it = ScalarBuilder::default();
    let (x, mean_of_x) = (it.input(0), it.input(1));
    // By the mean there is no gradient: d/dm sum((x - m)^2) = -2 sum(x - m) = 0.
    let constant = it.detach(mean_of_x);
    let difference = it.sub(x, constant);
    let square = it.mul(difference, difference);
    let share = it.scale(square, 1.0 / n as f64);
    let operands = [(value, all_dims(&shape)), (mean, kept.clone())];
    let shares = map(builder, shape, &operands, &it.finish(share));
    (mean, reduction::reduce(builder, shares, Combine::Sum, &kept))
}

/// Makes a buffer follow a tensor: `(1 - momentum) * buffer + momentum * factor * tensor`.
fn follow(builder: &mut Builder, (buffer, value): (Value, Value), momentum: f64, factor: f64) {
    let shape = builder.shape(buffer);
    let mut it = ScalarBuilder::default();
    let (kept, new) = (it.input(0), it.input(1));
    let (kept, new) = (it.scale(kept, 1.0 - momentum), it.scale(new, momentum * factor));
    let sum = it.add(kept, new);
    let operands = [(buffer, all_dims(&shape)), (value, all_dims(&shape))];
    let next = map(builder, shape, &operands, &it.finish(sum));
    builder.updates.push((buffer, next));
}

// (x - mean) a + c with a = weight / sqrt(var + eps) and c = bias. The mean is constant in the first term, and its gradient comes through c = bias -
// (mean - constant mean) a, so that the gradients of all four vectors follow from two sums over x: those of g and of g (x - mean).
fn normalized_channels(
    builder: &mut Builder,
    value: Value,
    [mean, var, weight, bias]: [Value; 4],
    eps: f64,
) -> Value {
    let (shape, kept) = (builder.shape(value), vec![1]);
    let channels = builder.shape(mean);
    let of_channels = |values: &[Value]| -> Vec<(Value, Vec<FactorId>)> {
        values.iter().map(|&it| (it, vec![0])).collect()
    };
    let mut it = ScalarBuilder::default();
    let (var_is, weight_is) = (it.input(0), it.input(1));
    let sum = it.offset(var_is, eps);
    let root = activation::rsqrt(&mut it, sum);
    let product = it.mul(root, weight_is);
    let scale = map(builder, channels, &of_channels(&[var, weight]), &it.finish(product));
    let mut it = ScalarBuilder::default();
    let (mean_is, scale_is, bias_is) = (it.input(0), it.input(1), it.input(2));
    let constant = it.detach(mean_is);
    let nothing = it.sub(mean_is, constant);
    let nothing = it.mul(nothing, scale_is);
    let shift = it.sub(bias_is, nothing);
    let shift = map(builder, channels, &of_channels(&[mean, scale, bias]), &it.finish(shift));
    let mut it = ScalarBuilder::default();
    let (x, mean_is, scale_is, shift_is) = (it.input(0), it.input(1), it.input(2), it.input(3));
    let constant = it.detach(mean_is);
    let difference = it.sub(x, constant);
    let scaled = it.mul(difference, scale_is);
    let result = it.add(scaled, shift_is);
    let mut operands = vec![(value, all_dims(&shape))];
    operands.extend([mean, scale, shift].map(|it| (it, kept.clone())));
    map(builder, shape, &operands, &it.finish(result))
}

// As layer_norm, over the channels of one group and all dims after the channels, with weight and bias for each channel. The channels become two
// dims, [groups, channels of a group], so that batch, groups and the other dims can be split. Source: Wu & He 2018.
fn group_norm(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    if shape.len() < 2 {
        return Err(
            arguments.fault(0, format!("the input must be [n, channels, ..], found {shape}"))
        );
    }
    if shape.len() == MAX_RANK {
        return Err(layout::too_many_dims(arguments, 0, MAX_RANK + 1));
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
    let channels = [n_groups, shape[1] / n_groups];
    let grouped: Shape =
        [shape[0]].into_iter().chain(channels).chain(shape[2..].iter().copied()).collect();
    let value = layout::reshaped(builder, value, grouped);
    let kept = vec![0, 1];
    let centered = reduction::centered(builder, value, &kept);
    let mut of_channels =
        |value| (layout::reshaped(builder, value, Shape::new(&channels)), vec![1, 2]);
    let settings = [of_channels(weight), of_channels(bias)];
    let result = Scaled { value: centered, kept, eps }.build(builder, &settings);
    Ok(Argument::Tensor(layout::reshaped(builder, result, shape)))
}

/// A tensor that is divided by the root of its mean square over all dims but some.
struct Scaled {
    value: Value,
    kept: Vec<FactorId>,
    eps: f64,
}

impl Scaled {
    /// The quotient, times the first and plus the second of the other tensors, if there is one; those come with the dims that they have.
    fn build(&self, builder: &mut Builder, others: &[(Value, Vec<FactorId>)]) -> Value {
        let shape = builder.shape(self.value);
        let mut it = ScalarBuilder::default();
        let x = it.input(0);
        let square = it.mul(x, x);
        let squares = map_one(builder, self.value, &it.finish(square));
        let mean = reduction::mean_to(builder, squares, &self.kept);
        let mut it = ScalarBuilder::default();
        let mean_square = it.input(0);
        let sum = it.offset(mean_square, self.eps);
        let scale = activation::rsqrt(&mut it, sum);
        let scales = map_one(builder, mean, &it.finish(scale));
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

/// All dims but the last, and the last.
fn last_dim(
    builder: &Builder,
    arguments: &Arguments<'_>,
    value: Value,
) -> Result<(Vec<FactorId>, usize), Fault> {
    match builder.shape(value).len().checked_sub(1) {
        Some(last) => Ok(((0..last).map(factor_id).collect(), last)),
        None => Err(arguments.fault(0, "takes tensors of at least 1 dim, found a scalar")),
    }
}

fn vector(
    builder: &Builder,
    arguments: &Arguments<'_>,
    position: usize,
    extent: usize,
) -> Result<Value, Fault> {
    let value = arguments.tensor(builder, position)?;
    let shape = builder.shape(value);
    match shape[..] == [extent] {
        true => Ok(value),
        false => Err(arguments.expected_number(position, &format!("[{extent}]"), shape)),
    }
}

/// A buffer of this extent that nothing updates yet.
fn buffer(
    builder: &Builder,
    arguments: &Arguments<'_>,
    position: usize,
    extent: usize,
) -> Result<Value, Fault> {
    let value = vector(builder, arguments, position, extent)?;
    if !matches!(builder.graph.node(value).source, Source::Buffer(_)) {
        let help = "write `buffer(\"running_mean\", [channels], zeros())`";
        return Err(arguments
            .expected_number(position, "a buffer", "another tensor")
            .with_help(help));
    }
    if builder.updates.iter().any(|&(buffer, _)| buffer == value) {
        let name = &builder.graph.node(value).name;
        return Err(arguments.fault(position, format!("the buffer `{name}` is updated already")));
    }
    Ok(value)
}

fn eps(arguments: &Arguments<'_>, position: usize) -> Result<f64, Fault> {
    let eps = arguments.number(position)?;
    match eps >= 0.0 {
        true => Ok(eps),
        false => Err(arguments.expected_number(position, "at least 0", eps)),
    }
}
