//! Convolution and pooling of images `[n, c, h, w]`.

use soybean_plan::{ConvolutionForm, PoolingForm, Shape};

use super::{Arguments, Row, SampleArgument, map_one};
use crate::{
    builder::{Argument, Builder},
    fault::Fault,
    graph::Value,
    operators::{convolve::Convolve, pool::Pool},
    scalar::ScalarBuilder,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const fn integer(value: i64) -> SampleArgument {
    SampleArgument::Integer(value)
}

/// Stride, padding and dilation, then groups.
macro_rules! settings {
    ($image:expr, $filter:expr, $stride:expr, $padding:expr, $dilation:expr, $groups:expr) => {
        &[tensor($image), tensor($filter), $stride, $padding, $dilation, integer($groups)]
    };
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "conv2d",
        arguments: &["input", "weight", "stride", "padding", "dilation", "groups"],
        build: conv2d,
        samples: &[
            settings!(&[2, 2, 4, 4], &[4, 2, 3, 3], integer(1), integer(1), integer(1), 1),
            settings!(
                &[1, 3, 7, 5],
                &[2, 3, 3, 2],
                integer(3),
                SampleArgument::List(&[0, 1]),
                integer(1),
                1
            ),
            settings!(&[1, 4, 5, 5], &[2, 2, 3, 3], integer(2), integer(2), integer(2), 2),
            settings!(&[2, 4, 3, 3], &[4, 1, 2, 2], integer(1), integer(0), integer(1), 4),
            settings!(&[2, 4, 2, 3], &[2, 4, 1, 1], integer(1), integer(0), integer(1), 1),
        ],
    },
    Row {
        name: "max_pool2d",
        arguments: &["input", "kernel_size", "stride", "padding"],
        build: |builder, arguments| {
            let (_, result) = pool(builder, arguments, PoolingForm::Max)?;
            Ok(Argument::Tensor(result))
        },
        samples: POOL_SAMPLES,
    },
    Row {
        name: "avg_pool2d",
        arguments: &["input", "kernel_size", "stride", "padding"],
        build: avg_pool2d,
        samples: POOL_SAMPLES,
    },
    Row {
        name: "global_avg_pool2d",
        arguments: &["input"],
        build: global_avg_pool2d,
        samples: &[&[tensor(&[2, 4, 3, 5])]],
    },
];

const POOL_SAMPLES: &[&[SampleArgument]] = &[
    &[tensor(&[2, 4, 4, 6]), integer(2), integer(2), integer(0)],
    &[
        tensor(&[2, 2, 5, 7]),
        SampleArgument::List(&[3, 2]),
        integer(2),
        SampleArgument::List(&[1, 0]),
    ],
    &[tensor(&[1, 2, 5, 5]), integer(3), integer(1), integer(1)],
];

/// A setting for both spatial dims: one number, or two.
fn pair(arguments: &Arguments<'_>, position: usize, least: usize) -> Result<[usize; 2], Fault> {
    let given = match arguments.get(position) {
        Argument::Integer(value) => vec![*value, *value],
        _ => arguments.integers(position)?,
    };
    let valid = |&it: &i64| usize::try_from(it).ok().filter(|&it| it >= least);
    match given.iter().map(valid).collect::<Option<Vec<usize>>>().as_deref() {
        Some(&[height, width]) => Ok([height, width]),
        _ => Err(arguments.fault(
            position,
            format!("expected one or two integers of at least {least}, found {given:?}"),
        )),
    }
}

/// A tensor of images.
fn images(builder: &Builder, arguments: &Arguments<'_>) -> Result<(Value, Shape), Fault> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    match shape.len() {
        4 => Ok((value, shape)),
        _ => Err(arguments
            .fault(0, format!("takes images [batch, channels, height, width], found {shape}"))),
    }
}

fn conv2d(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let (value, image) = images(builder, arguments)?;
    let weight = arguments.tensor(builder, 1)?;
    let filter = builder.shape(weight);
    let groups = pair(arguments, 5, 1)?[0];
    if filter.len() != 4 {
        let message = format!(
            "the weight must be [filters, channels / groups, height, width], found {filter}"
        );
        return Err(arguments.fault(1, message));
    }
    if !image[1].is_multiple_of(groups) || !filter[0].is_multiple_of(groups) {
        let (channels, filters) = (image[1], filter[0]);
        let message = format!(
            "{groups} groups divide neither or only one of {channels} channels and {filters} filters"
        );
        return Err(arguments
            .fault(5, message)
            .with_help("both numbers must be multiples of the groups"));
    }
    if image[1] != filter[1] * groups {
        let (expected, found) = (image[1] / groups, filter[1]);
        let message =
            format!("the input has {expected} channels for each group, the weight {found}");
        return Err(arguments
            .fault(1, message)
            .with_help("the weight is [filters, channels / groups, height, width]"));
    }
    let (stride, padding, dilation) =
        (pair(arguments, 2, 1)?, pair(arguments, 3, 0)?, pair(arguments, 4, 1)?);
    let reach = [0, 1].map(|dim| dilation[dim] * (filter[dim + 2] - 1) + 1);
    check_reach(arguments, &image, reach, padding)?;
    let form = ConvolutionForm::Forward;
    let convolve = Convolve { form, image, filter, groups, stride, padding, dilation };
    Ok(Argument::Tensor(builder.graph.add(convolve.into(), &[value, weight])))
}

fn check_reach(
    arguments: &Arguments<'_>,
    image: &Shape,
    reach: [usize; 2],
    padding: [usize; 2],
) -> Result<(), Fault> {
    let padded = [0, 1].map(|dim| image[dim + 2] + 2 * padding[dim]);
    if reach[0] <= padded[0] && reach[1] <= padded[1] {
        return Ok(());
    }
    Err(arguments.fault(
        1,
        format!("the kernel reaches over {reach:?} pixels, the padded image has {padded:?}"),
    ))
}

fn pool(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    form: PoolingForm,
) -> Result<(Pool, Value), Fault> {
    let (value, image) = images(builder, arguments)?;
    let (window, stride, padding) =
        (pair(arguments, 1, 1)?, pair(arguments, 2, 1)?, pair(arguments, 3, 0)?);
    check_reach(arguments, &image, window, padding)?;
    if 2 * padding[0] > window[0] || 2 * padding[1] > window[1] {
        let message =
            format!("the padding must be at most half of the window {window:?}, found {padding:?}");
        return Err(arguments.fault(3, message));
    }
    let pool = Pool { form, image, window, stride, padding };
    let result = builder.graph.add(pool.clone().into(), &[value]);
    Ok((pool, result))
}

// The sum of each window divided by its size, pixels outside counted as zeros: PyTorch's default.
fn avg_pool2d(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let (pool, sums) = pool(builder, arguments, PoolingForm::Sum)?;
    let mut scalar = ScalarBuilder::default();
    let x = scalar.input(0);
    let share = scalar.scale(x, 1.0 / (pool.window[0] * pool.window[1]) as f64);
    Ok(Argument::Tensor(map_one(builder, sums, &scalar.finish(share))))
}

// The mean over both spatial dims, [n, c, h, w] -> [n, c].
fn global_avg_pool2d(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let (value, _) = images(builder, arguments)?;
    Ok(Argument::Tensor(super::reduction::mean_to(builder, value, &[0, 1])))
}
