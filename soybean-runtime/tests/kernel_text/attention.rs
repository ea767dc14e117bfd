//! Random attention and its gradients.

use soybean_plan::{Attention, AttentionForm};

use crate::{
    case::Case,
    dice::Dice,
    operands::{Types, scaled},
};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let sides = [1, 2, 3, 8, 17, 24, 64, 70, 128, 200];
    let lengths = [1, 2, 7, 33, 64, 65, 130, 150];
    let (queries, keys) = (dice.pick(&lengths), dice.pick(&lengths));
    let heads = dice.pick(&[1, 2, 3]);
    of(dice, [heads, queries, keys], &sides)
}

/// Without queries or keys, there is nothing to sum.
pub(crate) fn empty(dice: &mut Dice) -> Case {
    let sizes = dice.pick(&[[2, 0, 3], [2, 3, 0], [0, 3, 3]]);
    of(dice, sizes, &[4])
}

fn of(dice: &mut Dice, [heads, queries, keys]: [usize; 3], sides: &[usize]) -> Case {
    let form = dice.pick(&[AttentionForm::Forward, AttentionForm::Gradient]);
    let (features, width) = (dice.pick(sides), dice.pick(sides));
    let it = Attention {
        form,
        heads,
        queries,
        keys,
        features,
        width,
        is_causal: dice.below(2) == 0,
        scale: dice.pick(&[0.125, 1.0, -0.5]),
    };
    // Scores have a size near 1, and so have sums over queries or keys.
    let sizes = [queries * features, keys * features, keys * width, queries * width];
    let (n_inputs, n_result) = match form {
        AttentionForm::Forward => (3, sizes[3]),
        AttentionForm::Gradient => (4, sizes[..3].iter().sum()),
    };
    let n_terms = [1, features, width.max(features), queries];
    let types = Types::new(dice, n_inputs);
    let each = types.inputs.iter().zip(sizes).zip(n_terms);
    let inputs = each.map(|((dtype, size), n_terms)| scaled(dice, *dtype, heads * size, n_terms));
    let inputs = inputs.collect();
    let tolerance = types.tolerance();
    let results = vec![(types.result, heads * n_result)];
    Case { precision: types.precision, ..Case::new(it, inputs, results, tolerance) }
}
