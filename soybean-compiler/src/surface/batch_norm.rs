//! Batch norm: statistics of the batch in training, running ones in evaluation.

use soybean_plan::{Mode, NumberRange};

use super::{
    Arguments, Row, SampleArgument, activation, map,
    norm::{eps, vector},
    reduction,
};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    graph::Source,
    operators::elementwise::all_dims,
    scalar::ScalarBuilder,
    signature::FactorId,
    value::Value,
};

macro_rules! sample {
    ($input:expr, $channels:expr) => {
        &[
            SampleArgument::tensor($input),
            SampleArgument::Buffer { shape: $channels, low: -1.0, high: 1.0 },
            SampleArgument::Buffer { shape: $channels, low: 0.5, high: 2.0 },
            SampleArgument::tensor($channels),
            SampleArgument::tensor($channels),
            SampleArgument::Float(0.25),
            SampleArgument::Float(0.1),
        ]
    };
}

pub(super) const TABLE: &[Row] = &[Row {
    name: "batch_norm",
    doc: "Each channel of `[n, c, ..]` normalized: in training by the batch, whose statistics both buffers follow, in evaluation by the buffers.",
    arguments: &["input", "running_mean", "running_var", "weight", "bias", "momentum", "eps"],
    build: batch_norm,
    samples: &[sample!(&[4, 6, 3], &[6]), sample!(&[4, 2], &[2]), sample!(&[3, 1, 2, 5], &[1])],
}];

// (x - mean) / sqrt(var + eps) * weight + bias for each channel. Training uses the mean and
// variance of the batch, and updates both buffers as moving averages (the variance with correction
// 1). Evaluation uses the buffers. Source: Ioffe & Szegedy 2015.
fn batch_norm(
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
    let channels = shape[1];
    let running_mean = buffer(builder, arguments, 1, channels)?;
    let running_var = buffer(builder, arguments, 2, channels)?;
    let weight = vector(builder, arguments, 3, channels)?;
    let bias = vector(builder, arguments, 4, channels)?;
    let momentum = arguments.number_in(5, NumberRange::SHARE)?;
    let eps = eps(arguments, 6)?;
    if builder.mode() == Mode::Inference {
        let vectors = [running_mean, running_var, weight, bias];
        return Ok(Argument::Tensor(normalized_channels(builder, value, vectors, eps)));
    }
    let n = shape.n_elements() / channels;
    if n < 2 {
        let message =
            format!("the variance needs more than one element of each channel, found {shape}");
        return Err(arguments.fault(0, message));
    }
    let (mean, var) = statistics(builder, value, n);
    follow(builder, (running_mean, mean), momentum, 1.0);
    follow(builder, (running_var, var), momentum, n as f64 / (n - 1) as f64);
    let mean = builder.by_phase(mean, running_mean);
    let var = builder.by_phase(var, running_var);
    Ok(Argument::Tensor(normalized_channels(builder, value, [mean, var, weight, bias], eps)))
}

/// Returns mean and variance of each channel, without the rounding errors of the mean, see
/// [`reduction::exact`]. What the first mean `m` lacks, `mean(x - m)`, corrects both: the variance
/// is `mean((x - m)^2) - mean(x - m)^2`. So all ranks exchange both sums at once.
fn statistics(builder: &mut Builder, value: Value, n: usize) -> (Value, Value) {
    let mean = |builder: &mut Builder, it| reduction::mean_to(builder, it, &[1]);
    let (first, _, rest) = reduction::with_rest(builder, value, &[1], mean);
    let spread = reduction::spread(builder, (value, first), &[1], n);
    let mut it = ScalarBuilder::default();
    let (spread_is, rest_is) = (it.input(0), it.input(1));
    let square = it.mul(rest_is, rest_is);
    let is_less = it.greater(spread_is, square);
    let excess = it.select(is_less, square, spread_is);
    let excess = it.detach(excess);
    let var = it.sub(spread_is, excess);
    let operands = [spread, rest].map(|it| (it, vec![0]));
    let channels = builder.shape(first);
    let var = map(builder, channels, &operands, &it.finish(var));
    (reduction::corrected(builder, first, rest), var)
}

/// Makes a buffer follow a tensor: `(1 - momentum) * buffer + momentum * factor * tensor`. Where
/// several calls share the buffer, each follows on from the one before.
fn follow(builder: &mut Builder, (buffer, value): (Value, Value), momentum: f64, factor: f64) {
    let shape = builder.shape(buffer);
    let mut it = ScalarBuilder::default();
    let (kept, new) = (it.input(0), it.input(1));
    let (kept, new) = (it.scale(kept, 1.0 - momentum), it.scale(new, momentum * factor));
    let sum = it.add(kept, new);
    let before = builder.updates.iter().position(|it| it.0 == buffer);
    let latest = before.map_or(buffer, |it| builder.updates[it].1);
    let operands = [(latest, all_dims(&shape)), (value, all_dims(&shape))];
    let next = map(builder, shape, &operands, &it.finish(sum));
    match before {
        Some(before) => builder.updates[before].1 = next,
        None => builder.updates.push((buffer, next)),
    }
}

// (x - mean) a + c with a = weight / sqrt(var + eps) and c = bias. The mean is constant in the
// first term; its gradient comes through c = bias - (mean - constant mean) a. The gradients of all
// four vectors then follow from two sums over x: of g and of g (x - mean).
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

/// Returns a buffer of this extent.
fn buffer(
    builder: &Builder,
    arguments: &Arguments<'_>,
    position: usize,
    extent: usize,
) -> Result<Value, CallDiagnostic> {
    let value = vector(builder, arguments, position, extent)?;
    if !matches!(builder.graph.node(value).source, Source::Buffer(_)) {
        let help = "write `buffer(\"running_mean\", [channels], zeros())`";
        return Err(arguments
            .expected_number(position, "a buffer", "another tensor")
            .with_help(help));
    }
    Ok(value)
}
