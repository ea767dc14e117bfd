//! Random embeddings of all forms.

use soybean_plan::{DType, Embedding, EmbeddingForm};

use crate::{
    case::{Case, Data},
    dice::Dice,
};

/// Returns the rows that a rank holds: all, a block, or every second.
pub(crate) fn rows(dice: &mut Dice, vocabulary: usize) -> Vec<usize> {
    match dice.below(3) {
        0 => (0..vocabulary).collect(),
        1 => (vocabulary / 3..(vocabulary * 2 / 3).max(1)).collect(),
        _ => (0..vocabulary).step_by(2).collect(),
    }
}

pub(crate) fn case(dice: &mut Dice) -> Case {
    let vocabulary = dice.pick(&[1, 7, 100, 1000]);
    let numbers = rows(dice, vocabulary);
    let form = dice.pick(&[EmbeddingForm::Gather, EmbeddingForm::ScatterAdd]);
    let (n_indices, width) = (dice.pick(&[0, 1, 50, 300, 700]), dice.pick(&[1, 5, 32, 100]));
    let rows = numbers.len();
    // Some are outside of the table.
    let indices = (0..n_indices).map(|_| dice.below(vocabulary + 2) as f32 - 1.0).collect();
    let (reads, writes) = match form {
        EmbeddingForm::Gather => (rows * width, n_indices * width),
        EmbeddingForm::ScatterAdd => (n_indices * width, rows * width),
    };
    let types = [[DType::F32; 2], [DType::F32, DType::Bf16], [DType::Bf16, DType::F32]];
    let [read, written] = dice.pick(&types);
    let inputs = vec![
        Data { dtype: DType::I32, numbers: indices },
        dice.data(read, reads),
        Data { dtype: DType::I32, numbers: numbers.iter().map(|it| *it as f32).collect() },
    ];
    let embedding = Embedding { form, n_indices, rows, vocabulary, width };
    // In the same order, so that the bits are the same.
    Case::new(embedding, inputs, vec![(written, writes)], 0.0)
}
