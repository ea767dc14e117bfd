//! The common text that all generated functions rely on.

/// Returns the text that precedes the functions: conversions, reductions, and matrix instructions
/// of tensor cores.
#[must_use]
pub const fn prelude() -> &'static str {
    include_str!("prelude.cu")
}
