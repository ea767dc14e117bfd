//! Random poolings of all forms.

use soybean_plan::{DType, Pooling, PoolingForm};

use crate::{case::Case, dice::Dice};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let form = dice.pick(&[
        PoolingForm::Max,
        PoolingForm::MaxGradient,
        PoolingForm::Sum,
        PoolingForm::SumGradient,
    ]);
    let (planes, channels) = (dice.pick(&[1, 3, 10]), dice.pick(&[1, 1, 2, 8]));
    let mut pair = |choices: &[usize]| [dice.pick(choices), dice.pick(choices)];
    let (image, window) = (pair(&[1, 5, 8, 13]), pair(&[1, 2, 3]));
    let (stride, padding) = (pair(&[1, 2, 3]), pair(&[0, 0, 1]));
    let fits =
        |dim: usize| (image[dim] + 2 * padding[dim]).saturating_sub(window[dim]) / stride[dim] + 1;
    let result = [fits(0), fits(1)];
    let padding = [0, 1]
        .map(|dim| if image[dim] + 2 * padding[dim] < window[dim] { 1 } else { padding[dim] });
    let pooling = Pooling { form, planes, channels, image, window, result, stride, padding };
    let sizes = [image, result].map(|it| planes * it[0] * it[1] * channels);
    let (reads, writes) = match form {
        PoolingForm::Max | PoolingForm::Sum => (vec![sizes[0]], sizes[1]),
        PoolingForm::MaxGradient => (vec![sizes[0], sizes[1]], sizes[0]),
        PoolingForm::SumGradient => (vec![sizes[1]], sizes[0]),
    };
    let dtype = dice.pick(&[DType::F32, DType::F32, DType::Bf16]);
    let inputs = reads.iter().map(|it| {
        let mut data = dice.data(dtype, *it);
        // Equal maxima occur often, and NaN is one of them.
        data.numbers.iter_mut().for_each(|it| *it = it.round());
        if dice.below(4) == 0 {
            data.numbers[0] = f32::NAN;
        }
        data
    });
    let inputs = inputs.collect();
    // Sums of at most nine whole numbers are exact; rounding to `bf16` is not worse than this.
    Case::new(pooling, inputs, vec![(dtype, writes)], 1e-6)
}
