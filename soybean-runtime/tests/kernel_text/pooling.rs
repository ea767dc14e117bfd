//! Random poolings of all forms.

use std::{cmp::Ordering, collections::BTreeSet};

use soybean_plan::{DType, Kernel, Pooling, PoolingForm};

use crate::{KINDS, case::Case, cases, dice::Dice};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let form = dice.pick(&[
        PoolingForm::Max,
        PoolingForm::MaxGradient,
        PoolingForm::MaxGradient,
        PoolingForm::Sum,
        PoolingForm::SumGradient,
    ]);
    let (planes, channels) = (dice.pick(&[1, 3, 10]), dice.pick(&[1, 1, 3, 4, 12, 8, 16, 24]));
    let is_large = dice.below(12) == 0;
    let mut pair = |choices: &[usize]| [dice.pick(choices), dice.pick(choices)];
    let (image, window) = if is_large {
        // Places in these windows do not fit into a byte.
        (pair(&[17, 20]), pair(&[16, 17]))
    } else {
        (pair(&[1, 5, 8, 13]), pair(&[1, 2, 3, 3]))
    };
    let (stride, padding) = (pair(&[1, 2, 2]), pair(&[0, 0, 1]));
    let image = if dice.below(24) == 0 { [0, image[1]] } else { image };
    let stride = match dice.below(4) {
        0 => window,
        1 => window.map(|it| it + 1),
        _ => stride,
    };
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
    let types = dice.pick(&[
        [DType::F32; 3],
        [DType::Bf16; 3],
        [DType::Bf16; 3],
        [DType::Bf16; 3],
        [DType::Bf16, DType::F32, DType::Bf16],
        [DType::F32, DType::Bf16, DType::F32],
    ]);
    let inputs = reads.iter().zip(types).map(|(it, dtype)| {
        let mut data = dice.data(dtype, *it);
        // Equal maxima occur often, and NaN is one of them.
        data.numbers.iter_mut().for_each(|it| *it = it.round());
        match dice.below(8) {
            0 | 1 => data.numbers.iter_mut().take(1).for_each(|it| *it = f32::NAN),
            2 => data.numbers.fill(f32::NEG_INFINITY),
            _ => {}
        }
        data
    });
    let inputs = inputs.collect();
    // Sums of a few hundred whole numbers are exact; rounding to `bf16` is not worse than this.
    Case::new(pooling, inputs, vec![(types[2], writes)], 1e-6)
}

/// The cases of a full run have the texts of all forms: for vectors of all lengths, and for windows
/// that overlap, touch, or leave gaps.
#[test]
fn cases_have_all_vectors_and_windows() {
    let mut found = BTreeSet::new();
    for case in cases(*KINDS.iter().find(|it| it.0 == "pooling").unwrap()) {
        let Kernel::Pool(it) = &case.kernel else { panic!("{case:?}") };
        let mut types = case.inputs.iter().map(|it| it.dtype).chain([case.results[0].0]);
        let is_narrow = types.all(|it| it == DType::Bf16);
        let fits = |it: &usize, n: usize| n.is_multiple_of(*it) && (*it < 8 || is_narrow);
        let width = [8, 4].into_iter().find(|width| fits(width, it.channels)).unwrap_or(1);
        let orders = [0, 1].map(|dim| it.window[dim].cmp(&it.stride[dim]));
        let overlaps = orders.contains(&Ordering::Greater);
        found.insert((it.form.name(), width, overlaps));
    }
    assert_eq!(found.len(), 4 * 3 * 2, "{found:?}");
}
