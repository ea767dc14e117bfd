//! Convolutions, pooling and images of another size.

use soybean_compiler::Argument;

use super::{
    Given::{self, Tensor},
    check, float, integer,
};

#[test]
fn convolutions() {
    let one = || integer(1);
    check(
        "conv1d",
        &[Tensor(&[2, 3]), Tensor(&[4, 3, 3]), one(), one(), one(), one()],
        "0: takes sequences [batch, channels, length], found [2, 3]",
    );
    check(
        "conv1d",
        &[Tensor(&[2, 3, 4]), Tensor(&[4, 3]), one(), one(), one(), one()],
        "1: the weight must be [filters, channels / groups, length], found [4, 3]",
    );
    check(
        "conv1d",
        &[Tensor(&[2, 3, 4]), Tensor(&[4, 3, 9]), one(), one(), one(), one()],
        "1: the kernel reaches over [9] pixels, the padded sequence has [6]",
    );
    check(
        "conv1d",
        &[Tensor(&[2, 3, 4]), Tensor(&[4, 3, 3]), one(), one(), one(), integer(0)],
        "5: `groups` must be at least 1, found 0",
    );
    let input = || Tensor(&[2, 4, 2, 2]);
    let transposed = |weight, padding, groups, expected| {
        let settings = [one(), integer(padding), integer(0), integer(groups), one()];
        let given: Vec<Given> = [input(), Tensor(weight)].into_iter().chain(settings).collect();
        check("conv_transpose2d", &given, expected);
    };
    transposed(
        &[4, 2],
        0,
        1,
        "1: the weight must be [channels, filters / groups, height, width], found [4, 2]",
    );
    transposed(&[4, 2, 3, 3], 0, 3, "5: 3 groups do not divide 4 channels");
    transposed(&[4, 2, 3, 3], 2, 1, "3: padding [2, 2] leaves nothing of the result");
}

#[test]
fn images_of_another_size() {
    let input = || Tensor(&[2, 4, 2, 2]);
    check(
        "adaptive_avg_pool2d",
        &[input(), integer(0)],
        "1: expected one or two integers of at least 1, found [0, 0]",
    );
    check(
        "max_pool1d",
        &[input(), integer(2), integer(2), integer(0)],
        "0: takes sequences [batch, channels, length], found [2, 4, 2, 2]",
    );
    check(
        "interpolate",
        &[input(), integer(4), Given::Other(Argument::Text("bicubic".to_owned()))],
        "2: the mode must be \"nearest\" or \"bilinear\", found \"bicubic\"",
    );
    check(
        "pixel_shuffle",
        &[input(), integer(3)],
        "1: 9, the square of the factor, does not divide 4 channels",
    );
    check(
        "pixel_unshuffle",
        &[input(), integer(3)],
        "1: the factor 3 does not divide 2 rows and 2 columns",
    );
    check(
        "local_response_norm",
        &[Tensor(&[2]), integer(3), float(1.0), float(1.0), float(1.0)],
        "0: the input must be [n, channels, ..], found [2]",
    );
}
