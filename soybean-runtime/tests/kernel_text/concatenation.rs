//! Random concatenations.

use soybean_plan::{Concatenation, DType};

use crate::{case::Case, dice::Dice};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let outer = dice.pick(&[1, 3, 16, 50]);
    // Sometimes more parts than one function can take.
    let n_parts = dice.pick(&[1, 2, 3, 7, 70]);
    let step = dice.pick(&[1, 1, 2, 8]);
    let lengths: Vec<usize> = (0..n_parts).map(|_| step * (1 + dice.below(20))).collect();
    let dtype = dice.pick(&[DType::F32, DType::Bf16, DType::I32]);
    let inputs = lengths.iter().map(|it| dice.data(dtype, outer * it)).collect();
    let n_elements = outer * lengths.iter().sum::<usize>();
    let concatenation = Concatenation { outer, lengths: lengths.into() };
    Case::new(concatenation, inputs, vec![(dtype, n_elements)], 0.0)
}
