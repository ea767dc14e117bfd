//! The text of [`Permutation`].

use soybean_plan::Permutation;

use crate::{Call, Generated};

pub(crate) const fn generate(
    _it: &Permutation,
    _call: &Call<'_>,
    _prefix: &str,
) -> Option<Generated> {
    None
}
