//! Pooling of images `[n, c, h, w]`.

use soybean_plan::{Binary, Combine, ImageLayout, PoolingForm, Shape};

use super::{
    Arguments, Row, SampleArgument, along,
    convolution::{check_reach, images, per_dim},
    layout, map, map_one, reduction,
};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{elementwise::all_dims, pool::Pool},
    scalar::{self, ScalarBuilder},
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const fn integer(value: i64) -> SampleArgument {
    SampleArgument::Integer(value)
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "max_pool1d",
        doc: "The maximum of each window of sequences `[n, c, l]`.",
        arguments: &["input", "kernel_size", "stride", "padding"],
        build: |builder, arguments| {
            let (_, result) = pool_sequences(builder, arguments, PoolingForm::Max)?;
            Ok(Argument::Tensor(result))
        },
        samples: SEQUENCES,
    },
    Row {
        name: "avg_pool1d",
        doc: "The mean of each window of sequences `[n, c, l]`.",
        arguments: &["input", "kernel_size", "stride", "padding"],
        build: |builder, arguments| {
            let (window, sums) = pool_sequences(builder, arguments, PoolingForm::Sum)?;
            Ok(Argument::Tensor(scaled(builder, sums, 1.0 / window as f64)))
        },
        samples: SEQUENCES,
    },
    Row {
        name: "max_pool2d",
        doc: "The maximum of each window of images `[n, c, h, w]`.",
        arguments: &["input", "kernel_size", "stride", "padding"],
        build: |builder, arguments| {
            let (_, result) = pool(builder, arguments, PoolingForm::Max)?;
            Ok(Argument::Tensor(result))
        },
        samples: SAMPLES,
    },
    Row {
        name: "avg_pool2d",
        doc: "The mean of each window of images `[n, c, h, w]`.",
        arguments: &["input", "kernel_size", "stride", "padding"],
        build: avg_pool2d,
        samples: SAMPLES,
    },
    Row {
        name: "adaptive_avg_pool2d",
        doc: "The means of windows that divide images `[n, c, h, w]` into a number of rows and columns.",
        arguments: &["input", "output_size"],
        build: adaptive_avg_pool2d,
        samples: &[
            &[tensor(&[2, 2, 4, 6]), integer(2)],
            &[tensor(&[2, 4, 5, 4]), SampleArgument::List(&[3, 4])],
            &[tensor(&[1, 2, 3, 7]), SampleArgument::List(&[5, 2])],
        ],
    },
    Row {
        name: "global_avg_pool2d",
        doc: "The mean of each channel: `[n, c, h, w]` gives `[n, c]`.",
        arguments: &["input"],
        build: global_avg_pool2d,
        samples: &[&[tensor(&[2, 4, 3, 5])]],
    },
];

const SEQUENCES: &[&[SampleArgument]] = &[
    &[tensor(&[2, 4, 6]), integer(2), integer(2), integer(0)],
    &[tensor(&[1, 2, 7]), integer(3), integer(2), integer(1)],
];

const SAMPLES: &[&[SampleArgument]] = &[
    &[tensor(&[2, 4, 4, 6]), integer(2), integer(2), integer(0)],
    &[
        tensor(&[2, 2, 5, 7]),
        SampleArgument::List(&[3, 2]),
        integer(2),
        SampleArgument::List(&[1, 0]),
    ],
    &[tensor(&[1, 2, 5, 5]), integer(3), integer(1), integer(1)],
];

fn pool(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    form: PoolingForm,
) -> Result<(Pool, Value), CallDiagnostic> {
    let (value, image) = images(builder, arguments)?;
    let (window, stride, padding) = (
        per_dim::<2>(arguments, 1, 1)?,
        per_dim::<2>(arguments, 2, 1)?,
        per_dim::<2>(arguments, 3, 0)?,
    );
    check_windows(arguments, &image[2..], &window, &padding)?;
    let pool = Pool { form, image, window, stride, padding, layout: ImageLayout::ChannelsFirst };
    let result = builder.graph.add(pool.clone().into(), &[value]);
    Ok((pool, result))
}

/// Returns the length of the windows, and the result.
fn pool_sequences(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    form: PoolingForm,
) -> Result<(usize, Value), CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    let [n, channels, length] = shape[..] else {
        let message = format!("takes sequences [batch, channels, length], found {shape}");
        return Err(arguments.fault(0, message));
    };
    let (window, stride, padding) =
        (arguments.size(1, 1)?, arguments.size(2, 1)?, arguments.size(3, 0)?);
    check_windows(arguments, &[length], &[window], &[padding])?;
    // Sequences are images of one row.
    let image = Shape::new(&[n, channels, 1, length]);
    let row = layout::reshaped(builder, value, image);
    let pool = Pool {
        form,
        image,
        window: [1, window],
        stride: [1, stride],
        padding: [0, padding],
        layout: ImageLayout::ChannelsFirst,
    };
    let result = builder.graph.add(pool.into(), &[row]);
    let length = builder.shape(result)[3];
    Ok((window, layout::reshaped(builder, result, Shape::new(&[n, channels, length]))))
}

/// Checks that windows fit into padded images, and that each has a pixel of the image.
pub(super) fn check_windows(
    arguments: &Arguments<'_>,
    image: &[usize],
    window: &[usize],
    padding: &[usize],
) -> Result<(), CallDiagnostic> {
    check_reach(arguments, image, window, padding)?;
    if window.iter().zip(padding).all(|(window, padding)| 2 * padding <= *window) {
        return Ok(());
    }
    let message =
        format!("the padding must be at most half of the window {window:?}, found {padding:?}");
    Err(arguments.fault(3, message))
}

// The sum of each window divided by its size, pixels outside counted as zeros: PyTorch's default.
fn avg_pool2d(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let (pool, sums) = pool(builder, arguments, PoolingForm::Sum)?;
    Ok(Argument::Tensor(scaled(builder, sums, 1.0 / (pool.window[0] * pool.window[1]) as f64)))
}

pub(super) fn scaled(builder: &mut Builder, value: Value, factor: f64) -> Value {
    let mut scalar = ScalarBuilder::default();
    let x = scalar.input(0);
    let product = scalar.scale(x, factor);
    map_one(builder, value, &scalar.finish(product))
}

// The mean over both spatial dims, [n, c, h, w] -> [n, c].
fn global_avg_pool2d(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let (value, _) = images(builder, arguments)?;
    Ok(Argument::Tensor(reduction::mean_to(builder, value, &[0, 1])))
}

// Window o of m along n pixels is floor(o n / m)..ceil((o + 1) n / m), as in PyTorch. If m divides
// n, these are windows of n / m pixels side by side; otherwise the means along a dim are a product
// with a matrix.
fn adaptive_avg_pool2d(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let (value, image) = images(builder, arguments)?;
    let size = per_dim::<2>(arguments, 1, 1)?;
    if (0..2).all(|dim| image[dim + 2].is_multiple_of(size[dim])) {
        let window = [image[2] / size[0], image[3] / size[1]];
        let pool = Pool {
            form: PoolingForm::Sum,
            image,
            window,
            stride: window,
            padding: [0; 2],
            layout: ImageLayout::ChannelsFirst,
        };
        let sums = builder.graph.add(pool.into(), &[value]);
        return Ok(Argument::Tensor(scaled(builder, sums, 1.0 / (window[0] * window[1]) as f64)));
    }
    // The last dim comes first: its product needs no permutation, and leaves less to permute for
    // the other.
    let along = |value, dim: usize| {
        let matrix = averages(builder, image[dim + 2], size[dim]);
        along::along(builder, value, dim + 2, matrix)
    };
    Ok(Argument::Tensor([1, 0].into_iter().fold(value, along)))
}

/// Returns the matrix `[n, m]` that takes the means of `m` windows of `n` pixels. Its element for
/// pixel `i` and window `o` is 1 if `o n < (i + 1) m` and `i m < (o + 1) n`, divided by the sum of
/// the window's column.
fn averages(builder: &mut Builder, n: usize, m: usize) -> Value {
    let mut it = ScalarBuilder::default();
    let (pixel, window) = (it.float(0), it.float(1));
    let [begins, ends] = [0.0, 1.0].map(|by| {
        let (pixel, window) = (it.offset(pixel, by), it.offset(window, by));
        [it.scale(pixel, m as f64), it.scale(window, n as f64)]
    });
    let is_after = it.binary(Binary::Greater, ends[0], begins[1]);
    let is_before = it.binary(Binary::Greater, ends[1], begins[0]);
    let is_inside = it.mul(is_after, is_before);
    let inside = along::of_indices(builder, [n, m], &it.finish(is_inside));
    let n_pixels = reduction::reduce(builder, inside, Combine::Sum, &[1]);
    let shape = builder.shape(inside);
    let operands = [(inside, all_dims(&shape)), (n_pixels, vec![1])];
    map(builder, shape, &operands, &scalar::binary(Binary::Divide))
}
