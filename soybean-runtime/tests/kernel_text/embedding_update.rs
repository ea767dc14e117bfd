//! Random updates of embedding tables in place.

use soybean_plan::{DType, EmbeddingUpdate, Map, Shape, Strides};

use crate::{
    case::{Case, Data},
    dice::Dice,
    embedding::rows,
    map::program,
};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let vocabulary = dice.pick(&[1, 7, 100, 1000]);
    let numbers = rows(dice, vocabulary);
    let (n_indices, width) = (dice.pick(&[0, 1, 50, 300, 700]), dice.pick(&[1, 5, 32, 100]));
    let (n_tables, n_results) = dice.pick(&[(1, 1), (2, 1), (2, 2)]);
    let extents = Shape::new(&[numbers.len(), width]);
    // The last input is one number.
    let mut strides = vec![extents.dense_strides(); 1 + n_tables];
    strides.push(Strides::default());
    let program = program(dice, strides.len(), n_results);
    // Some are outside of the table.
    let indices = (0..n_indices).map(|_| dice.below(vocabulary + 2) as f32 - 1.0).collect();
    let dtype = dice.pick(&[DType::F32, DType::Bf16]);
    let mut inputs = vec![
        Data { dtype: DType::I32, numbers: indices },
        dice.data(dtype, n_indices * width),
        Data { dtype: DType::I32, numbers: numbers.iter().map(|it| *it as f32).collect() },
    ];
    inputs.extend((0..n_tables).map(|_| dice.data(DType::F32, extents.n_elements())));
    inputs.push(dice.data(DType::F32, 1));
    let results = vec![(DType::F32, extents.n_elements()); n_results];
    let reused = (0..n_results).map(|it| [it, EmbeddingUpdate::N_OWN_INPUTS + it]).collect();
    let map = Map { extents, inputs: strides.into(), program };
    // About ten roundings of values below 1e3, after sums in the same order.
    let case = Case::new(EmbeddingUpdate { n_indices, vocabulary, map }, inputs, results, 1e-4);
    Case { reused, ..case }
}
