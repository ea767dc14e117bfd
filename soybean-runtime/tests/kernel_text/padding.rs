//! Random windows of tensors.

use soybean_plan::{DType, MAX_RANK, Padding, Shape};

use crate::{case::Case, dice::Dice};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let n_dims = 1 + dice.below(4);
    let (mut input, mut result, mut low) = (Vec::new(), Vec::new(), [0; MAX_RANK]);
    for low in low.iter_mut().take(n_dims) {
        let extent = dice.pick(&[1, 2, 4, 7, 12, 16]);
        input.push(extent);
        // Some dims stay whole, the others begin before the input or within it.
        if dice.below(2) == 0 {
            result.push(extent);
        } else {
            *low = i32::try_from(dice.below(9)).unwrap() - 4;
            result.push(dice.pick(&[1, 3, 8, 20]));
        }
    }
    let (input, result) = (Shape::new(&input), Shape::new(&result));
    let dtype = dice.pick(&[DType::F32, DType::Bf16, DType::I32]);
    // Infinity, which maxima need, is no integer.
    let fill = if dtype == DType::I32 { -7.0 } else { dice.pick(&[0.0, 1.5, f64::NEG_INFINITY]) };
    let data = dice.data(dtype, input.n_elements());
    let padding = Padding { input, result, low, fill };
    Case::new(padding, vec![data], vec![(dtype, result.n_elements())], 0.0)
}
