//! Random convolutions of all forms.

use std::collections::BTreeSet;

use soybean_fake_cuda::{Sanitize, has_compiler};
use soybean_plan::{Convolution, ConvolutionForm, DType, ImageLayout, Precision};

use crate::{
    KINDS,
    case::Case,
    cases, check, device,
    dice::Dice,
    operands::{Types, scaled},
};

/// The windows of a convolution along rows and columns.
pub(crate) struct Windows {
    pub(crate) window: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) padding: [usize; 2],
    pub(crate) dilation: [usize; 2],
}

impl Windows {
    fn reach(&self, dim: usize) -> usize {
        self.dilation[dim] * (self.window[dim] - 1) + 1
    }

    /// Returns the extents of an image that holds a window and has this much room besides.
    pub(crate) fn image(&self, room: [usize; 2]) -> [usize; 2] {
        let extent = |dim: usize| room[dim] + self.reach(dim);
        [0, 1].map(|dim| extent(dim).saturating_sub(2 * self.padding[dim]).max(1))
    }

    /// Returns the extents of the result for an image.
    pub(crate) fn result(&self, image: [usize; 2]) -> [usize; 2] {
        let room = |dim: usize| image[dim] + 2 * self.padding[dim] - self.reach(dim);
        [0, 1].map(|dim| room(dim) / self.stride[dim] + 1)
    }
}

pub(crate) fn case(dice: &mut Dice) -> Case {
    let form =
        dice.pick(&[ConvolutionForm::Forward, ConvolutionForm::Data, ConvolutionForm::Filter]);
    let mut pair = |choices: &[usize]| [dice.pick(choices), dice.pick(choices)];
    let (window, stride) = (pair(&[1, 2, 3, 5]), pair(&[1, 1, 2, 3]));
    let (padding, dilation, room) = (pair(&[0, 1, 2]), pair(&[1, 1, 2]), pair(&[0, 3, 8, 15]));
    let windows = Windows { window, stride, padding, dilation };
    let image = windows.image(room);
    let result = windows.result(image);
    let (batch, groups) = (dice.pick(&[1, 2, 5]), dice.pick(&[1, 1, 2, 4]));
    let (channels, filters) = (dice.pick(&[1, 3, 8, 20]), dice.pick(&[1, 2, 8, 9, 40]));
    let it = Convolution {
        form,
        batch,
        groups,
        channels,
        filters,
        image,
        window,
        result,
        stride,
        padding,
        dilation,
        layout: dice.pick(ImageLayout::ALL),
    };
    let images = batch * groups * channels * image[0] * image[1];
    let weights = groups * filters * channels * window[0] * window[1];
    let sums = batch * groups * filters * result[0] * result[1];
    let (n_inputs, n_result, n_terms) = match form {
        ConvolutionForm::Forward => ([images, weights], sums, channels * window[0] * window[1]),
        ConvolutionForm::Data => ([sums, weights], images, filters * window[0] * window[1]),
        ConvolutionForm::Filter => ([images, sums], weights, batch * result[0] * result[1]),
    };
    let types = Types::new(dice, 2);
    let inputs = vec![
        scaled(dice, types.inputs[0], n_inputs[0], 1),
        scaled(dice, types.inputs[1], n_inputs[1], n_terms),
    ];
    let tolerance = types.tolerance();
    let results = vec![(types.result, n_result)];
    Case { precision: types.precision, ..Case::new(it, inputs, results, tolerance) }
}

/// Returns the gradient of filters for images of few channels.
pub(crate) fn filters_of_few_channels(dice: &mut Dice) -> Case {
    let window = dice.pick(&[[1, 1], [3, 3], [3, 3], [5, 5], [7, 7], [11, 11], [3, 2], [1, 4]]);
    let mut pair = |choices: &[usize]| [dice.pick(choices), dice.pick(choices)];
    let (stride, padding, room) =
        (pair(&[1, 1, 1, 2, 4]), pair(&[0, 1, 2, 3]), pair(&[0, 5, 13, 40]));
    let dilation = [dice.pick(&[1, 1, 1, 2]), 1];
    let windows = Windows { window, stride, padding, dilation };
    let mut image = windows.image(room);
    // Rows of some images have a multiple of 16 bytes.
    if dice.below(3) > 0 {
        image[1] = image[1].next_multiple_of(8);
    }
    let result = windows.result(image);
    let it = Convolution {
        form: ConvolutionForm::Filter,
        batch: dice.pick(&[1, 2, 3]),
        groups: 1,
        channels: dice.pick(&[1, 2, 3, 3, 4, 5, 8]),
        filters: dice.pick(&[8, 16, 64, 96, 136]),
        image,
        window,
        result,
        stride,
        padding,
        dilation,
        layout: ImageLayout::ChannelsLast,
    };
    let (dtype, precision) =
        dice.pick(&[(DType::Bf16, Precision::Bf16), (DType::F32, Precision::Tf32)]);
    let n_terms = it.batch * result[0] * result[1];
    let images = scaled(dice, dtype, it.batch * image[0] * image[1] * it.channels, 1);
    let gradients = scaled(dice, dtype, n_terms * it.filters, n_terms);
    let n_results = it.filters * it.channels * window[0] * window[1];
    let results = vec![(dice.pick(&[DType::F32, DType::F32, DType::Bf16]), n_results)];
    let tolerance = if dtype == DType::F32 { 4e-3 } else { 3e-2 };
    Case { precision, ..Case::new(it, vec![images, gradients], results, tolerance) }
}

#[test]
fn special_pixels_reach_the_filter_elements_that_read_them() {
    if !has_compiler() {
        return eprintln!("skipped: no C++ compiler");
    }
    let case = |seed| {
        let mut dice = Dice(seed);
        let mut case = filters_of_few_channels(&mut dice);
        let pixels = &mut case.inputs[0].numbers;
        let place = dice.below(pixels.len());
        pixels[place] = dice.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
        case
    };
    let cases: Vec<Case> = (100..132).map(case).collect();
    check("special pixels", &cases, Sanitize::Nothing);
}

/// The cases of a full run have all copies from images, single columns and pairs, warps that share
/// pixels, and windows that are split between blocks.
#[test]
fn filters_of_few_channels_have_all_copies_and_parts() {
    let cases = cases(*KINDS.iter().find(|it| it.0 == "filters-of-few-channels").unwrap());
    let (mut copies, mut parts) = (BTreeSet::new(), BTreeSet::new());
    for case in &cases {
        let text = device::text(std::slice::from_ref(case));
        let constant = |name: &str| -> usize {
            let rest = text.split(&format!("constexpr int {name} = ")).nth(1).unwrap();
            rest.split(';').next().unwrap().parse().unwrap()
        };
        let per_word = constant("PER_WORD");
        copies.insert((per_word, constant("COPIED"), constant("UNIT_TILES")));
        for name in ["WARPS_ALONG", "WINDOW_PARTS", "FILTER_PARTS"] {
            parts.insert((name, constant(name) > 1));
        }
    }
    assert_eq!(parts.len(), 2 * 3, "{parts:?}");
    let expected =
        [(1, 1, 1), (1, 4, 1), (2, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 2), (2, 8, 1), (2, 8, 2)];
    assert_eq!(copies, BTreeSet::from(expected));
}
