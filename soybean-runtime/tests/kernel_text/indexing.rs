//! Random choices and sums of elements by their indices.

use soybean_plan::{DType, Indexing, IndexingForm};

use crate::{
    case::{Case, Data},
    dice::Dice,
    embedding::rows,
};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let extent = dice.pick(&[1, 7, 100, 300]);
    let numbers = rows(dice, extent);
    let form = dice.pick(IndexingForm::ALL);
    let (outer, inner) = (dice.pick(&[0, 1, 3, 9]), dice.pick(&[1, 5, 32]));
    let (n_indices, rows) = (dice.pick(&[0, 1, 50]), numbers.len());
    let n = outer * n_indices * inner;
    // Some are outside of the lines.
    let indices = (0..n).map(|_| dice.below(extent + 2) as f32 - 1.0).collect();
    let (reads, writes) = match form {
        IndexingForm::Gather => (outer * rows * inner, n),
        IndexingForm::ScatterAdd => (n, outer * rows * inner),
    };
    let types = [[DType::F32; 2], [DType::F32, DType::Bf16], [DType::Bf16, DType::F32]];
    let [read, written] = dice.pick(&types);
    let inputs = vec![
        Data { dtype: DType::I32, numbers: indices },
        dice.data(read, reads),
        Data { dtype: DType::I32, numbers: numbers.iter().map(|it| *it as f32).collect() },
    ];
    let indexing = Indexing { form, outer, n_indices, rows, extent, inner };
    // In the same order, so that the bits are the same.
    Case::new(indexing, inputs, vec![(written, writes)], 0.0)
}
