//! Models that the macro accepts, in every form, compile without a warning and run.

#[path = "accepted/by_macro.rs"]
pub mod by_macro;
#[path = "accepted/function.rs"]
pub mod function;
#[path = "accepted/indivisible_batch.rs"]
pub mod indivisible_batch;
#[path = "accepted/module.rs"]
pub mod module;
#[path = "accepted/pins.rs"]
pub mod pins;
#[path = "accepted/updates.rs"]
pub mod updates;
