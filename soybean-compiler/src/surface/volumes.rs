//! Convolution and pooling of volumes `[n, c, d, h, w]`, made of those of images.

use soybean_plan::{ConvolutionForm, ImageLayout, PoolingForm, Shape};

use super::{
    Arguments, Row, SampleArgument,
    convolution::{check_reach, filters, per_dim},
    layout,
    pooling::{check_windows, scaled},
    slicing,
};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{concatenate::Concatenate, convolve::Convolve, pad::Pad, pool::Pool},
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const fn integer(value: i64) -> SampleArgument {
    SampleArgument::Integer(value)
}

const fn list(values: &'static [i64]) -> SampleArgument {
    SampleArgument::List(values)
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "conv3d",
        doc: "Convolution of volumes `[n, c, d, h, w]` with filters `[o, c / groups, kd, kh, kw]`. The depth is not split.",
        arguments: &["input", "weight", "stride", "padding", "dilation", "groups"],
        build: conv3d,
        samples: &[
            &[
                tensor(&[2, 2, 3, 4, 4]),
                tensor(&[4, 2, 3, 3, 3]),
                integer(1),
                integer(1),
                integer(1),
                integer(1),
            ],
            &[
                tensor(&[1, 4, 6, 3, 5]),
                tensor(&[2, 2, 2, 2, 3]),
                list(&[2, 1, 2]),
                list(&[1, 0, 1]),
                list(&[3, 1, 1]),
                integer(2),
            ],
            &[
                tensor(&[2, 3, 5, 2, 2]),
                tensor(&[2, 3, 1, 1, 1]),
                list(&[2, 1, 1]),
                integer(0),
                integer(1),
                integer(1),
            ],
        ],
    },
    Row {
        name: "max_pool3d",
        doc: "The maximum of each window of volumes `[n, c, d, h, w]`.",
        arguments: &["input", "kernel_size", "stride", "padding"],
        build: |builder, arguments| {
            let (_, result) = pool(builder, arguments, PoolingForm::Max)?;
            Ok(Argument::Tensor(result))
        },
        samples: POOLINGS,
    },
    Row {
        name: "avg_pool3d",
        doc: "The mean of each window of volumes `[n, c, d, h, w]`.",
        arguments: &["input", "kernel_size", "stride", "padding"],
        build: |builder, arguments| {
            let (window, sums) = pool(builder, arguments, PoolingForm::Sum)?;
            let n_elements: usize = window.iter().product();
            Ok(Argument::Tensor(scaled(builder, sums, 1.0 / n_elements as f64)))
        },
        samples: POOLINGS,
    },
];

const POOLINGS: &[&[SampleArgument]] = &[
    &[tensor(&[2, 4, 4, 2, 6]), integer(2), integer(2), integer(0)],
    &[tensor(&[1, 2, 5, 4, 3]), list(&[3, 2, 1]), list(&[1, 2, 1]), list(&[1, 1, 0])],
];

/// Returns a tensor of volumes.
fn volumes(
    builder: &Builder,
    arguments: &Arguments<'_>,
) -> Result<(Value, [usize; 5]), CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    match shape[..].try_into() {
        Ok(volume) => Ok((value, volume)),
        Err(_) => Err(arguments.fault(
            0,
            format!("takes volumes [batch, channels, depth, height, width], found {shape}"),
        )),
    }
}

// Each plane of the result is a convolution of images whose channels are those of the planes under
// the filter. A weight [o, c, kd, kh, kw] is one of images [o, c kd, kh, kw] as it lies.
fn conv3d(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    const FORM: &str = "[filters, channels / groups, depth, height, width]";
    let (value, volume) = volumes(builder, arguments)?;
    let groups = arguments.size(5, 1)?;
    let (weight, filter) = filters(builder, arguments, &Shape::new(&volume), groups, FORM)?;
    let stride = per_dim::<3>(arguments, 2, 1)?;
    let padding = per_dim::<3>(arguments, 3, 0)?;
    let dilation = per_dim::<3>(arguments, 4, 1)?;
    let reach = [0, 1, 2].map(|dim| dilation[dim] * (filter[dim + 2] - 1) + 1);
    check_reach(arguments, &volume[2..], &reach, &padding)?;
    let [n, channels, depth, height, width] = volume;
    let n_planes = (depth + 2 * padding[0] - reach[0]) / stride[0] + 1;
    let n_taps = filter[2];
    let planes = layout::permuted(builder, value, vec![0, 2, 1, 3, 4]);
    let taps: Vec<Value> = (0..n_taps)
        .map(|tap| {
            let low = signed(padding[0]) - signed(dilation[0] * tap);
            every(builder, planes, low, stride[0], n_planes)
        })
        .collect();
    let stacked = match taps[..] {
        [one] => one,
        _ => builder.graph.add(Concatenate { dim: 3 }.into(), &taps),
    };
    let image = Shape::new(&[n * n_planes, channels * n_taps, height, width]);
    let [filters, per_group, ..] = filter[..] else { unreachable!("the weight has 5 dims") };
    let filter = Shape::new(&[filters, per_group * n_taps, filter[3], filter[4]]);
    let convolve = Convolve {
        form: ConvolutionForm::Forward,
        image,
        filter,
        groups,
        stride: [stride[1], stride[2]],
        padding: [padding[1], padding[2]],
        dilation: [dilation[1], dilation[2]],
        layout: ImageLayout::ChannelsFirst,
    };
    let result = convolve.result();
    let operands =
        [layout::reshaped(builder, stacked, image), layout::reshaped(builder, weight, filter)];
    let images = builder.graph.add(convolve.into(), &operands);
    let volumes = Shape::new(&[n, n_planes, filters, result[2], result[3]]);
    let volumes = layout::reshaped(builder, images, volumes);
    Ok(Argument::Tensor(layout::permuted(builder, volumes, vec![0, 2, 1, 3, 4])))
}

fn signed(n_elements: usize) -> i32 {
    i32::try_from(n_elements).expect("extents are far below 2^31")
}

/// Returns `n` planes of `[n, d, c, h, w]` at even distances, with a dim of extent 1 before the
/// rows. The first has `low` planes of zeros before the planes of the input, or is so many planes
/// behind their first.
fn every(builder: &mut Builder, planes: Value, low: i32, distance: usize, n: usize) -> Value {
    let whole = builder.shape(planes);
    let pad = Pad { low: vec![0, low, 0, 0, 0], shape: whole.with(1, n * distance), fill: 0.0 };
    let window = slicing::windowed(builder, planes, pad);
    let [batch, _, channels, height, width] = whole[..] else { unreachable!("5 dims") };
    let runs = Shape::new(&[batch, n, distance, channels, height, width]);
    let runs = layout::reshaped(builder, window, runs);
    let first = slicing::part(builder, runs, 2, 0, 1);
    layout::reshaped(builder, first, Shape::new(&[batch, n, channels, 1, height, width]))
}

/// Returns the extents of the windows, and the result: each plane pooled as an image, then each
/// column of the planes.
fn pool(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    form: PoolingForm,
) -> Result<([usize; 3], Value), CallDiagnostic> {
    let (value, volume) = volumes(builder, arguments)?;
    let window = per_dim::<3>(arguments, 1, 1)?;
    let stride = per_dim::<3>(arguments, 2, 1)?;
    let padding = per_dim::<3>(arguments, 3, 0)?;
    check_windows(arguments, &volume[2..], &window, &padding)?;
    let [n, channels, depth, height, width] = volume;
    let mut pooled = |value, pool: Pool| {
        let images = layout::reshaped(builder, value, pool.image);
        (pool.result(), builder.graph.add(pool.into(), &[images]))
    };
    let of_planes = Pool {
        form,
        image: Shape::new(&[n, channels * depth, height, width]),
        window: [window[1], window[2]],
        stride: [stride[1], stride[2]],
        padding: [padding[1], padding[2]],
        layout: ImageLayout::ChannelsFirst,
    };
    let (planes, result) = pooled(value, of_planes);
    let of_columns = Pool {
        form,
        image: Shape::new(&[n, channels, depth, planes[2] * planes[3]]),
        window: [window[0], 1],
        stride: [stride[0], 1],
        padding: [padding[0], 0],
        layout: ImageLayout::ChannelsFirst,
    };
    let (columns, result) = pooled(result, of_columns);
    let shape = Shape::new(&[n, channels, columns[2], planes[2], planes[3]]);
    Ok((window, layout::reshaped(builder, result, shape)))
}
