//! The text of [`Reduction`].

use soybean_plan::Reduction;

use crate::{Call, Generated};

pub(crate) const fn generate(
    _it: &Reduction,
    _call: &Call<'_>,
    _prefix: &str,
) -> Option<Generated> {
    None
}
