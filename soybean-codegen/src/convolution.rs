//! The text of [`Convolution`].

use soybean_plan::Convolution;

use crate::{Call, Generated};

/// Nothing: the text is not written yet.
pub(crate) const fn generate(
    _it: &Convolution,
    _call: &Call<'_>,
    _prefix: &str,
) -> Option<Generated> {
    None
}
