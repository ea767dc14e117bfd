//! Explains plans from the compiler's reports: costs of other plans of a model, differences,
//! pictures, and an interactive page.

mod again;
mod diff;
pub mod page;
pub mod picture;
mod saved;
mod tensor;
mod why;

pub use again::{Changes, PassText, compile_again, json, pass_texts};
pub use diff::{Side, diff};
pub use saved::{SavedConversion, SavedOperator, SavedPlan, SavedTensor};
pub use soybean_compiler::{
    Compiled, Objective, SearchEffort, Strategy, is_max_work, readable_seconds,
};
pub use tensor::describe_tensor;
pub use why::{Choice, Watch, Why, why, why_watched};
