//! Explanations of plans, made from what the compiler reports: other plans of a model beside its own, pictures, and a page to explore.

mod again;
mod diff;
pub mod page;
pub mod picture;
mod saved;
mod why;

pub use again::{Changes, PassText, compile_again, json, pass_texts};
pub use diff::{Side, diff};
pub use saved::{SavedConversion, SavedOperator, SavedPlan, SavedTensor};
pub use soybean_compiler::{Compiled, Objective, Strategy, readable_bytes};
pub use why::{Choice, Why, why};
