//! The text that all generated functions rely on.

/// What stands before the functions in each text: conversions, reductions, products of tensor cores.
#[must_use]
pub const fn prelude() -> &'static str {
    include_str!("prelude.cu")
}
