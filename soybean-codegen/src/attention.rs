//! The text of [`Attention`].

use soybean_plan::Attention;

use crate::{Call, Generated};

/// Nothing: the text is not written yet.
pub(crate) const fn generate(
    _it: &Attention,
    _call: &Call<'_>,
    _prefix: &str,
) -> Option<Generated> {
    None
}
