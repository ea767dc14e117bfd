//! Models in every form that the macro accepts; they compile without warnings and run.

pub mod by_macro;
pub mod function;
pub mod indivisible_batch;
pub mod module;
pub mod pins;
pub mod updates;
