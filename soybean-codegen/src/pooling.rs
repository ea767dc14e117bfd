//! The text of [`Pooling`].

use soybean_plan::Pooling;

use crate::{Call, Generated};

pub(crate) const fn generate(_it: &Pooling, _call: &Call<'_>, _prefix: &str) -> Option<Generated> {
    None
}
