//! Images `[n, c, h, w]` of another size.

use soybean_plan::{Binary, Shape};

use super::{
    Arguments, Row, SampleArgument, along,
    convolution::{images, per_dim},
    layout,
};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    scalar::ScalarBuilder,
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
        name: "interpolate",
        doc: "Images `[n, c, h, w]` of `output_size`, by `\"nearest\"` or `\"bilinear\"` pixels; corners are not aligned.",
        arguments: &["input", "output_size", "mode"],
        build: interpolate,
        samples: &[
            &[
                tensor(&[2, 2, 3, 4]),
                SampleArgument::List(&[6, 4]),
                SampleArgument::Text("nearest"),
            ],
            &[
                tensor(&[1, 2, 5, 3]),
                SampleArgument::List(&[3, 7]),
                SampleArgument::Text("nearest"),
            ],
            &[tensor(&[2, 2, 4, 3]), integer(6), SampleArgument::Text("bilinear")],
            &[
                tensor(&[1, 2, 6, 5]),
                SampleArgument::List(&[4, 1]),
                SampleArgument::Text("bilinear"),
            ],
        ],
    },
    Row {
        name: "pixel_shuffle",
        doc: "Channels as pixels: `[n, c r^2, h, w]` gives `[n, c, h r, w r]` for the factor `r`.",
        arguments: &["input", "upscale_factor"],
        build: pixel_shuffle,
        samples: &[&[tensor(&[2, 8, 3, 2]), integer(2)], &[tensor(&[1, 9, 1, 2]), integer(3)]],
    },
    Row {
        name: "pixel_unshuffle",
        doc: "Pixels as channels: `[n, c, h r, w r]` gives `[n, c r^2, h, w]` for the factor `r`.",
        arguments: &["input", "downscale_factor"],
        build: pixel_unshuffle,
        samples: &[&[tensor(&[2, 2, 6, 4]), integer(2)], &[tensor(&[1, 1, 3, 6]), integer(3)]],
    },
];

/// The pixels of which a pixel of the result is a mean.
#[derive(Clone, Copy)]
enum Interpolation {
    Nearest,
    Bilinear,
}

// The last dim comes first: its product needs no permutation, and leaves less to permute for the
// other.
fn interpolate(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let (value, image) = images(builder, arguments)?;
    let size = per_dim::<2>(arguments, 1, 1)?;
    let mode = match arguments.text(2)? {
        "nearest" => Interpolation::Nearest,
        "bilinear" => Interpolation::Bilinear,
        other => {
            let message = format!("the mode must be \"nearest\" or \"bilinear\", found {other:?}");
            return Err(arguments.fault(2, message));
        }
    };
    let mut resized = value;
    for dim in [3, 2] {
        let (n, m) = (image[dim], size[dim - 2]);
        resized = match mode {
            Interpolation::Nearest if m.is_multiple_of(n) => {
                layout::repeated(builder, arguments, resized, [dim, dim + 1], m / n)?
            }
            Interpolation::Bilinear if m == n => resized,
            Interpolation::Nearest | Interpolation::Bilinear => {
                let matrix = shares(builder, mode, n, m);
                along::along(builder, resized, dim, matrix)
            }
        };
    }
    Ok(Argument::Tensor(resized))
}

/// Returns the matrix `[n, m]` of the shares that `n` pixels have in `m` pixels, as in PyTorch. The
/// nearest pixel of pixel `o` is `floor(o n / m)`. Of bilinear ones, pixel `o` is at
/// `(o + 1/2) n / m - 1/2`, but not outside, and the share falls by 1 for each pixel of distance.
fn shares(builder: &mut Builder, mode: Interpolation, n: usize, m: usize) -> Value {
    let mut it = ScalarBuilder::default();
    let (from, to) = (it.float(0), it.float(1));
    let (zero, one) = (it.constant(0.0), it.constant(1.0));
    let share = match mode {
        Interpolation::Nearest => {
            let place = it.scale(to, n as f64);
            let begin = it.scale(from, m as f64);
            let end = it.offset(begin, m as f64);
            let (is_before, is_inside) = (it.greater(begin, place), it.greater(end, place));
            it.select(is_before, zero, is_inside)
        }
        Interpolation::Bilinear => {
            let middle = it.offset(to, 0.5);
            let scaled = it.scale(middle, n as f64 / m as f64);
            let place = it.offset(scaled, -0.5);
            let (place, last) =
                (it.binary(Binary::Maximum, place, zero), it.constant((n - 1) as f64));
            let is_outside = it.greater(place, last);
            let place = it.select(is_outside, last, place);
            let offsets = [it.sub(from, place), it.sub(place, from)];
            let distance = it.binary(Binary::Maximum, offsets[0], offsets[1]);
            let share = it.sub(one, distance);
            it.binary(Binary::Maximum, share, zero)
        }
    };
    along::of_indices(builder, [n, m], &it.finish(share))
}

fn pixel_shuffle(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let (value, image) = images(builder, arguments)?;
    let factor = arguments.size(1, 1)?;
    let [n, channels, h, w] = [0, 1, 2, 3].map(|dim| image[dim]);
    let per_pixel = factor.saturating_mul(factor);
    if !channels.is_multiple_of(per_pixel) {
        let message =
            format!("{per_pixel}, the square of the factor, does not divide {channels} channels");
        return Err(arguments.fault(1, message));
    }
    let parts = Shape::new(&[n, channels / per_pixel, factor, factor, h, w]);
    let shape = Shape::new(&[n, channels / per_pixel, h * factor, w * factor]);
    Ok(Argument::Tensor(rearranged(builder, value, parts, vec![0, 1, 4, 2, 5, 3], shape)))
}

fn pixel_unshuffle(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let (value, image) = images(builder, arguments)?;
    let factor = arguments.size(1, 1)?;
    let [n, channels, h, w] = [0, 1, 2, 3].map(|dim| image[dim]);
    if !(h.is_multiple_of(factor) && w.is_multiple_of(factor)) {
        let message = format!("the factor {factor} does not divide {h} rows and {w} columns");
        return Err(arguments.fault(1, message));
    }
    let parts = Shape::new(&[n, channels, h / factor, factor, w / factor, factor]);
    let shape = Shape::new(&[n, channels * factor * factor, h / factor, w / factor]);
    Ok(Argument::Tensor(rearranged(builder, value, parts, vec![0, 1, 3, 5, 2, 4], shape)))
}

/// Returns a tensor whose dims were divided into parts, put into another order and joined.
fn rearranged(
    builder: &mut Builder,
    value: Value,
    parts: Shape,
    order: Vec<usize>,
    shape: Shape,
) -> Value {
    let divided = layout::reshaped(builder, value, parts);
    let permuted = layout::permuted(builder, divided, order);
    layout::reshaped(builder, permuted, shape)
}
