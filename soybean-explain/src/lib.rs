//! Explanations of plans, made from what the compiler reports: pictures, and a page to explore.

mod again;
pub mod page;
pub mod picture;

pub use again::{Changes, compile_again};
pub use soybean_compiler::Compiled;
