//! The text of [`Map`].

use soybean_plan::Map;

use crate::{Call, Generated};

pub(crate) const fn generate(_it: &Map, _call: &Call<'_>, _prefix: &str) -> Option<Generated> {
    None
}
