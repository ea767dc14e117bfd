//! The text of [`Contraction`].

use soybean_plan::Contraction;

use crate::{Call, Generated};

/// Nothing: the text is not written yet.
pub(crate) const fn generate(
    _it: &Contraction,
    _call: &Call<'_>,
    _prefix: &str,
) -> Option<Generated> {
    None
}
