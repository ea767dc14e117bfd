//! Random convolutions of all forms.

use soybean_plan::{Convolution, ConvolutionForm, ImageLayout};

use crate::{
    case::Case,
    dice::Dice,
    operands::{Types, scaled},
};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let form =
        dice.pick(&[ConvolutionForm::Forward, ConvolutionForm::Data, ConvolutionForm::Filter]);
    let mut pair = |choices: &[usize]| [dice.pick(choices), dice.pick(choices)];
    let (window, stride) = (pair(&[1, 2, 3, 5]), pair(&[1, 1, 2, 3]));
    let (padding, dilation, image) = (pair(&[0, 1, 2]), pair(&[1, 1, 2]), pair(&[0, 3, 8, 15]));
    let reach = [0, 1].map(|dim| dilation[dim] * (window[dim] - 1) + 1);
    // Images hold at least one window.
    let image = [0, 1].map(|dim| (image[dim] + reach[dim]).saturating_sub(2 * padding[dim]).max(1));
    let result = [0, 1].map(|dim| (image[dim] + 2 * padding[dim] - reach[dim]) / stride[dim] + 1);
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
