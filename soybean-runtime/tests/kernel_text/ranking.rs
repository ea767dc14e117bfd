//! Random rankings, with equal elements and with some that are no numbers.

use soybean_plan::{DType, Ranking, RankingForm};

use crate::{case::Case, dice::Dice};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let form = dice.pick(RankingForm::ALL);
    let (outer, inner) = (dice.pick(&[0, 1, 3, 9]), dice.pick(&[1, 5, 32]));
    let length = dice.pick(&[1, 2, 8, 100]);
    let dtype = dice.pick(&[DType::F32, DType::Bf16]);
    let n_elements = outer * length * inner;
    let mut data = dice.data(dtype, n_elements);
    for number in &mut data.numbers {
        match dice.below(12) {
            0 => *number = f32::NAN,
            1 => *number = f32::INFINITY,
            2 => *number = -0.0,
            3 => *number = 1.0,
            _ => {}
        }
    }
    let ranking = Ranking { form, outer, length, inner };
    Case::new(ranking, vec![data], vec![(DType::I32, n_elements)], 0.0)
}
