//! Random permutations.

use soybean_plan::{DType, MAX_RANK, Permutation, Shape, Strides};

use crate::{case::Case, dice::Dice};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let extents = match dice.below(3) {
        0 => Shape::new(dice.pick(&[&[40, 50][..], &[3, 33, 64], &[2, 70, 3, 20], &[100, 100]])),
        _ => dice.shape(),
    };
    let mut order: Vec<usize> = (0..extents.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, dice.below(last + 1));
    }
    let mut strides = [0; MAX_RANK];
    let mut stride = 1;
    for dim in order {
        strides[dim] = stride;
        stride *= extents[dim];
    }
    let dtype = dice.pick(&[DType::F32, DType::Bf16, DType::I32]);
    let input = dice.data(dtype, stride);
    let permutation = Permutation { extents, input: Strides(strides) };
    Case::new(permutation, vec![input], vec![(dtype, stride)], 0.0)
}
