//! The text of [`Concatenation`].

use soybean_plan::Concatenation;

use crate::{Call, Generated};

pub(crate) const fn generate(
    _it: &Concatenation,
    _call: &Call<'_>,
    _prefix: &str,
) -> Option<Generated> {
    None
}
