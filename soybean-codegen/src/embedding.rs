//! The text of [`Embedding`].

use soybean_plan::Embedding;

use crate::{Call, Generated};

pub(crate) const fn generate(
    _it: &Embedding,
    _call: &Call<'_>,
    _prefix: &str,
) -> Option<Generated> {
    None
}
