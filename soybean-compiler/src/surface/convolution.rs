//! Convolution of images `[n, c, h, w]` and of sequences `[n, c, l]`.

use soybean_plan::{ConvolutionForm, ImageLayout, Shape};

use super::{Arguments, Row, SampleArgument, layout, slicing};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{convolve::Convolve, pad::Pad},
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

/// Input and weight, then four settings.
macro_rules! sample {
    ($input:expr, $weight:expr, $($setting:expr),*) => {
        &[tensor(&$input), tensor(&$weight), $($setting),*]
    };
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "conv1d",
        doc: "Convolution of sequences `[n, c, l]` with filters `[o, c / groups, k]`.",
        arguments: &["input", "weight", "stride", "padding", "dilation", "groups"],
        build: conv1d,
        samples: &[
            sample!([2, 2, 6], [4, 2, 3], integer(1), integer(1), integer(1), integer(1)),
            sample!([1, 4, 9], [2, 2, 3], integer(3), integer(2), integer(2), integer(2)),
            sample!([3, 1, 2], [5, 1, 1], integer(1), integer(0), integer(1), integer(1)),
        ],
    },
    Row {
        name: "conv2d",
        doc: "Convolution of images `[n, c, h, w]` with filters `[o, c / groups, kh, kw]`.",
        arguments: &["input", "weight", "stride", "padding", "dilation", "groups"],
        build: conv2d,
        samples: &[
            sample!([2, 2, 4, 4], [4, 2, 3, 3], integer(1), integer(1), integer(1), integer(1)),
            sample!([1, 3, 7, 5], [2, 3, 3, 2], integer(3), list(&[0, 1]), integer(1), integer(1)),
            sample!([1, 4, 5, 5], [2, 2, 3, 3], integer(2), integer(2), integer(2), integer(2)),
            sample!([2, 4, 3, 3], [4, 1, 2, 2], integer(1), integer(0), integer(1), integer(4)),
            sample!([2, 4, 2, 3], [2, 4, 1, 1], integer(1), integer(0), integer(1), integer(1)),
        ],
    },
    Row {
        name: "conv_transpose2d",
        doc: "The gradient of a convolution by its images: `[n, c, h, w]` with filters `[c, o / groups, kh, kw]`.",
        arguments: &[
            "input",
            "weight",
            "stride",
            "padding",
            "output_padding",
            "groups",
            "dilation",
        ],
        build: conv_transpose2d,
        samples: &[
            sample!(
                [2, 4, 3, 3],
                [4, 2, 3, 3],
                integer(1),
                integer(1),
                integer(0),
                integer(1),
                integer(1)
            ),
            sample!(
                [1, 2, 2, 3],
                [2, 3, 3, 2],
                list(&[2, 3]),
                list(&[1, 0]),
                list(&[1, 2]),
                integer(1),
                integer(1)
            ),
            sample!(
                [2, 4, 2, 2],
                [4, 1, 2, 2],
                integer(2),
                integer(0),
                integer(0),
                integer(2),
                integer(1)
            ),
            // An output padding of a whole stride.
            sample!(
                [1, 2, 2, 2],
                [2, 2, 2, 2],
                integer(1),
                integer(1),
                integer(1),
                integer(1),
                integer(2)
            ),
        ],
    },
];

/// Returns a setting for two or three spatial dims: one number, or one for each.
pub(super) fn per_dim<const N: usize>(
    arguments: &Arguments<'_>,
    position: usize,
    least: usize,
) -> Result<[usize; N], CallDiagnostic> {
    let given = match arguments.get(position) {
        Argument::Integer(_) => vec![arguments.integer(position)?; N],
        _ => arguments.integers(position)?,
    };
    let valid = |&it: &i64| usize::try_from(it).ok().filter(|&it| it >= least);
    let valid: Option<Vec<usize>> = given.iter().map(valid).collect();
    valid.and_then(|it| it.try_into().ok()).ok_or_else(|| {
        let n = if N == 2 { "two" } else { "three" };
        let message = format!("expected one or {n} integers of at least {least}, found {given:?}");
        arguments.fault(position, message)
    })
}

/// Returns a tensor of images.
pub(super) fn images(
    builder: &Builder,
    arguments: &Arguments<'_>,
) -> Result<(Value, Shape), CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let shape = builder.shape(value);
    match shape.len() {
        4 => Ok((value, shape)),
        _ => Err(arguments
            .fault(0, format!("takes images [batch, channels, height, width], found {shape}"))),
    }
}

/// Returns a weight with the groups that its channels form.
pub(super) fn filters(
    builder: &Builder,
    arguments: &Arguments<'_>,
    input: &Shape,
    groups: usize,
    form: &str,
) -> Result<(Value, Shape), CallDiagnostic> {
    let weight = arguments.tensor(builder, 1)?;
    let filter = builder.shape(weight);
    if filter.len() != input.len() {
        return Err(arguments.fault(1, format!("the weight must be {form}, found {filter}")));
    }
    if !input[1].is_multiple_of(groups) || !filter[0].is_multiple_of(groups) {
        let (channels, filters) = (input[1], filter[0]);
        let message = format!(
            "{groups} groups divide neither or only one of {channels} channels and {filters} filters"
        );
        return Err(arguments
            .fault(5, message)
            .with_help("both numbers must be multiples of the groups"));
    }
    if input[1] != filter[1] * groups {
        let (expected, found) = (input[1] / groups, filter[1]);
        let message =
            format!("the input has {expected} channels for each group, the weight {found}");
        return Err(arguments.fault(1, message).with_help(format!("the weight is {form}")));
    }
    Ok((weight, filter))
}

fn conv1d(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.tensor(builder, 0)?;
    let input = builder.shape(value);
    if input.len() != 3 {
        let message = format!("takes sequences [batch, channels, length], found {input}");
        return Err(arguments.fault(0, message));
    }
    let groups = arguments.size(5, 1)?;
    let (weight, filter) =
        filters(builder, arguments, &input, groups, "[filters, channels / groups, length]")?;
    let (stride, padding, dilation) =
        (arguments.size(2, 1)?, arguments.size(3, 0)?, arguments.size(4, 1)?);
    check_reach(arguments, &[input[2]], &[dilation * (filter[2] - 1) + 1], &[padding])?;
    // Sequences are images of one row.
    let image = Shape::new(&[input[0], input[1], 1, input[2]]);
    let filter = Shape::new(&[filter[0], filter[1], 1, filter[2]]);
    let convolve = Convolve {
        form: ConvolutionForm::Forward,
        image,
        filter,
        groups,
        stride: [1, stride],
        padding: [0, padding],
        dilation: [1, dilation],
        layout: ImageLayout::ChannelsFirst,
    };
    let [n, o, _, length] = convolve.result()[..] else { unreachable!("results are images") };
    let operands =
        [layout::reshaped(builder, value, image), layout::reshaped(builder, weight, filter)];
    let result = builder.graph.add(convolve.into(), &operands);
    Ok(Argument::Tensor(layout::reshaped(builder, result, Shape::new(&[n, o, length]))))
}

fn conv2d(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (value, image) = images(builder, arguments)?;
    let groups = arguments.size(5, 1)?;
    let (weight, filter) =
        filters(builder, arguments, &image, groups, "[filters, channels / groups, height, width]")?;
    let (stride, padding, dilation) = (
        per_dim::<2>(arguments, 2, 1)?,
        per_dim::<2>(arguments, 3, 0)?,
        per_dim::<2>(arguments, 4, 1)?,
    );
    let reach = [0, 1].map(|dim| dilation[dim] * (filter[dim + 2] - 1) + 1);
    check_reach(arguments, &image[2..], &reach, &padding)?;
    let (form, layout) = (ConvolutionForm::Forward, ImageLayout::ChannelsFirst);
    let convolve = Convolve { form, image, filter, groups, stride, padding, dilation, layout };
    Ok(Argument::Tensor(builder.graph.add(convolve.into(), &[value, weight])))
}

/// Windows must be within the padded input.
pub(super) fn check_reach(
    arguments: &Arguments<'_>,
    input: &[usize],
    reach: &[usize],
    padding: &[usize],
) -> Result<(), CallDiagnostic> {
    let padded: Vec<usize> = input.iter().zip(padding).map(|(it, by)| it + 2 * by).collect();
    if reach.iter().zip(&padded).all(|(reach, padded)| reach <= padded) {
        return Ok(());
    }
    let what = ["sequence", "image", "volume"][input.len() - 1];
    Err(arguments.fault(
        1,
        format!("the kernel reaches over {reach:?} pixels, the padded {what} has {padded:?}"),
    ))
}

// The gradient of a convolution with respect to its images, with the input in place of the result's
// gradient. Source: Zeiler et al. 2010.
fn conv_transpose2d(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    const FORM: &str = "[channels, filters / groups, height, width]";
    let (value, input) = images(builder, arguments)?;
    let weight = arguments.tensor(builder, 1)?;
    let filter = builder.shape(weight);
    if filter.len() != 4 {
        return Err(arguments.fault(1, format!("the weight must be {FORM}, found {filter}")));
    }
    if filter[0] != input[1] {
        let message = format!("the input has {} channels, the weight {}", input[1], filter[0]);
        return Err(arguments.fault(1, message).with_help(format!("the weight is {FORM}")));
    }
    let groups = arguments.size(5, 1)?;
    if !input[1].is_multiple_of(groups) {
        return Err(
            arguments.fault(5, format!("{groups} groups do not divide {} channels", input[1]))
        );
    }
    let (stride, padding, beyond, dilation) = (
        per_dim::<2>(arguments, 2, 1)?,
        per_dim::<2>(arguments, 3, 0)?,
        per_dim::<2>(arguments, 4, 0)?,
        per_dim::<2>(arguments, 6, 1)?,
    );
    if (0..2).any(|dim| beyond[dim] >= stride[dim].max(dilation[dim])) {
        let message =
            format!("`output_padding` must be less than stride or dilation, found {beyond:?}");
        return Err(arguments.fault(4, message));
    }
    // Whole strides of output padding are rows and columns of zeros behind the input.
    let extents = [0, 1].map(|dim| input[dim + 2] + beyond[dim] / stride[dim]);
    let padded = Pad {
        low: vec![0; 4],
        shape: Shape::new(&[input[0], input[1], extents[0], extents[1]]),
        fill: 0.0,
    };
    let image = [0, 1].map(|dim| {
        let reach = dilation[dim] * (filter[dim + 2] - 1) + 1 + beyond[dim] % stride[dim];
        ((extents[dim] - 1) * stride[dim] + reach).saturating_sub(2 * padding[dim])
    });
    if image.contains(&0) {
        return Err(arguments.fault(3, format!("padding {padding:?} leaves nothing of the result")));
    }
    let value = slicing::windowed(builder, value, padded);
    let image = Shape::new(&[input[0], groups * filter[1], image[0], image[1]]);
    let (form, layout) = (ConvolutionForm::Data, ImageLayout::ChannelsFirst);
    let convolve = Convolve { form, image, filter, groups, stride, padding, dilation, layout };
    Ok(Argument::Tensor(builder.graph.add(convolve.into(), &[value, weight])))
}
