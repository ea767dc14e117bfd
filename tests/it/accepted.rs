//! Models that the macro accepts, in every form, compile without a warning and run.

pub mod by_macro;
pub mod function;
pub mod indivisible_batch;
pub mod module;
pub mod pins;
pub mod updates;
