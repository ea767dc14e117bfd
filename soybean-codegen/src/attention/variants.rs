//! Variants of attention: each part that has a choice of tiles has one of its sizes.

use soybean_plan::AttentionForm;

use super::{
    Part, Writer,
    mma::{self, TileSizes},
};
use crate::product::Units;

impl Writer<'_> {
    /// Returns the number of variants: all combinations of the sizes of parts.
    pub(super) fn n_variants(&self) -> usize {
        self.tiled_parts().iter().map(|it| self.tile_sizes(*it).len().max(1)).product()
    }

    /// Returns the parts that have a choice of tiles.
    fn tiled_parts(&self) -> &[Part] {
        match self.it.form {
            AttentionForm::Forward => &[Part::Forward],
            form if form.has_query_gradient() && form.has_value_gradient() => {
                &[Part::KeyAndValueGradients, Part::QueryGradients]
            }
            _ => &[],
        }
    }

    /// Returns the sizes of tiles of a part, the usual ones first; none without tensor cores.
    fn tile_sizes(&self, part: Part) -> Vec<TileSizes> {
        match self.units() {
            Units::Tensor { per_word } if mma::fits(self.it, part, per_word) => {
                mma::tile_sizes(self.it, part, per_word)
            }
            Units::Tensor { .. } | Units::Single => Vec::new(),
        }
    }

    /// Returns the sizes of tiles of a part in this variant; `None` without tensor cores.
    pub(super) fn chosen_sizes(&self, part: Part) -> Option<TileSizes> {
        let sizes = self.tile_sizes(part);
        let Some(place) = self.tiled_parts().iter().position(|it| *it == part) else {
            return sizes.first().copied();
        };
        let before = self.tiled_parts()[..place].iter().map(|it| self.tile_sizes(*it).len().max(1));
        sizes.get(self.variant / before.product::<usize>() % sizes.len().max(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use soybean_plan::{Attention, DType, Kernel, Precision};

    use super::*;
    use crate::{Call, generate, generate_variant, n_variants};

    fn texts(form: AttentionForm, length: usize, side: usize, dtype: DType) -> Vec<String> {
        let kernel = Kernel::from(Attention::new(form, 2, [length; 2], [side; 2]));
        let types = &[dtype; 4];
        let (n_inputs, n_results) = if form == AttentionForm::Forward { (3, 1) } else { (4, 3) };
        let (inputs, results) = (&types[..n_inputs], &types[..n_results]);
        let call = Call { kernel: &kernel, inputs, results, precision: Precision::F32 };
        let text = |it| generate_variant(&call, it, "k").unwrap().text;
        let texts: Vec<String> = (0..n_variants(&call)).map(text).collect();
        assert_eq!(texts[0], generate(&call, "k").unwrap().text);
        texts
    }

    #[test]
    fn variants_are_all_combinations_of_tiles() {
        let check = |form, length, side, dtype, expected| {
            let texts = texts(form, length, side, dtype);
            assert_eq!(texts.len(), expected, "{form:?} {length} {side} {dtype}");
            assert_eq!(texts.iter().collect::<BTreeSet<_>>().len(), expected);
        };
        let (forward, gradient) = (AttentionForm::Forward, AttentionForm::Gradient);
        for side in [64, 128] {
            check(forward, 128, side, DType::Bf16, 3);
            check(gradient, 128, side, DType::Bf16, 4);
        }
        check(forward, 128, 256, DType::Bf16, 1);
        check(gradient, 128, 256, DType::Bf16, 1);
        check(forward, 64, 64, DType::Bf16, 1);
        check(forward, 128, 64, DType::F32, 1);
    }
}
