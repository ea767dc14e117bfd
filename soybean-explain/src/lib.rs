//! Explanations of plans, made from what the compiler reports: pictures, and a page to explore.

mod again;
mod near;
pub mod page;
pub mod picture;
mod why;

pub use again::{Changes, compile_again};
pub use near::nearest;
pub use soybean_compiler::Compiled;
pub use why::{Choice, Why, why};
