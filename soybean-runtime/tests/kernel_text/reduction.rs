//! Random reductions.

use soybean_plan::{
    Binary, Combine, DType, Instruction, MAX_RANK, Map, Reduction, ScalarProgram, Shape, Strides,
};

use crate::{
    case::{Case, Data},
    dice::{Dice, n_needed},
    map::program,
};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let extents = match dice.below(4) {
        // Few results of many elements, which are combined in two passes.
        0 => dice.pick(&[&[70_000][..], &[3, 20_000], &[9000, 5], &[30_000, 2], &[2000, 24]]),
        1 => &[],
        _ => return of(dice, None),
    };
    of(dice, Some(Shape::new(extents)))
}

fn of(dice: &mut Dice, extents: Option<Shape>) -> Case {
    let extents = extents.unwrap_or_else(|| dice.shape());
    let n_inputs = 1 + dice.below(2);
    let strides: Vec<_> = (0..n_inputs).map(|_| dice.strides(&extents)).collect();
    let program = program(dice, n_inputs, 1);
    let data = |it: &_| {
        let dtype = dice.pick(&[DType::F32, DType::F32, DType::Bf16, DType::I32]);
        dice.data(dtype, n_needed(&extents, it))
    };
    let inputs: Vec<Data> = strides.iter().map(data).collect();
    let (result, n_results) = kept(dice, &extents);
    let combine = dice.pick(&[Combine::Sum, Combine::Sum, Combine::Max]);
    let dtype = dice.pick(&[DType::F32, DType::F32, DType::Bf16]);
    let map = Map { extents, inputs: strides.into(), program };
    let n_combined = (extents.n_elements() / n_results.max(1)) as f32;
    let reduction = Reduction { map, combine, result };
    // Each value is off by about 1e-6; sums have about as many units as there are values.
    Case::new(reduction, inputs, vec![(dtype, n_results)], 1e-4 + 2e-5 * n_combined.sqrt())
}

/// Returns a reduction of integers whose sums wrap around.
pub(crate) fn of_integers(dice: &mut Dice) -> Case {
    let extents = match dice.below(3) {
        0 => Shape::new(dice.pick(&[&[70_000][..], &[3, 20_000], &[9000, 5], &[2000, 24]])),
        _ => dice.shape(),
    };
    let strides = dice.strides(&extents);
    let large = [i32::MIN, -(1 << 24), -1, 7, 1 << 24, 1 << 30, i32::MAX - 127];
    let numbers = (0..n_needed(&extents, &strides)).map(|_| dice.pick(&large) as f32).collect();
    let instructions = vec![
        Instruction::Integer(0),
        Instruction::IntegerConstant(1000),
        Instruction::Binary(Binary::AddIntegers, 0, 1),
    ];
    let results = vec![dice.pick(&[0, 2])];
    let program = ScalarProgram { instructions: instructions.into(), results: results.into() };
    let (result, n_results) = kept(dice, &extents);
    let combine = dice.pick(&[Combine::Sum, Combine::Max]);
    let map = Map { extents, inputs: vec![strides].into(), program };
    let inputs = vec![Data { dtype: DType::I32, numbers }];
    Case::new(Reduction { map, combine, result }, inputs, vec![(DType::I32, n_results)], 0.0)
}

/// Returns strides of a result over some of the dims, sometimes in another order, and its number of
/// elements.
fn kept(dice: &mut Dice, extents: &Shape) -> (Strides, usize) {
    let mut dims: Vec<usize> = (0..extents.len()).filter(|_| dice.below(2) == 0).collect();
    dims.reverse();
    if dice.below(4) == 0 {
        dims.reverse();
    }
    let mut strides = [0; MAX_RANK];
    let mut stride = 1;
    for dim in dims {
        strides[dim] = stride;
        stride *= extents[dim];
    }
    (Strides(strides), stride)
}
