//! Operands of products: types, sizes that keep sums near 1, and tolerances of results.

use soybean_plan::{DType, Precision};

use crate::{
    case::{Data, to_bf16},
    dice::Dice,
};

/// The types of the buffers of a product, and its precision.
pub(crate) struct Types {
    pub(crate) inputs: Vec<DType>,
    pub(crate) result: DType,
    pub(crate) precision: Precision,
}

impl Types {
    /// Returns the same type for all buffers, or a mixture.
    pub(crate) fn new(dice: &mut Dice, n_inputs: usize) -> Self {
        let both = [DType::F32, DType::Bf16];
        let each = dice.pick(&[&both[..1], &both[1..], &both]);
        Self {
            inputs: (0..n_inputs).map(|_| dice.pick(each)).collect(),
            result: dice.pick(&both),
            precision: dice.pick(&Precision::ALL),
        }
    }

    /// Returns the largest allowed difference to results of size 1 in single precision.
    pub(crate) fn tolerance(&self) -> f32 {
        let all_short = self.inputs.iter().all(|it| *it == DType::Bf16);
        match self.precision {
            Precision::F32 if !all_short => 2e-5,
            // Operands have errors of up to 2^-11 each, and those of many terms cancel partly.
            Precision::Tf32 => 4e-3,
            // The same with 2^-9, and sums of up to some hundred terms.
            Precision::F32 | Precision::Bf16 => 3e-2,
        }
    }
}

/// Returns elements whose products with others of size 1 have sums of this many terms with a size
/// near 1.
pub(crate) fn scaled(dice: &mut Dice, dtype: DType, n_elements: usize, n_terms: usize) -> Data {
    let factor = 1.0 / (n_terms.max(1) as f32).sqrt();
    let mut data = dice.data(DType::F32, n_elements);
    for it in &mut data.numbers {
        *it *= factor;
        if dtype == DType::Bf16 {
            *it = to_bf16(*it);
        }
    }
    Data { dtype, ..data }
}
