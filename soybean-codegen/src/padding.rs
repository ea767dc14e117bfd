//! The text of [`Padding`].

use soybean_plan::Padding;

use crate::{Call, Generated};

pub(crate) const fn generate(_it: &Padding, _call: &Call<'_>, _prefix: &str) -> Option<Generated> {
    None
}
