//! Tests of the runtime from the outside.
#![expect(clippy::unwrap_used, reason = "tests")]

mod non_finite;
mod training;
