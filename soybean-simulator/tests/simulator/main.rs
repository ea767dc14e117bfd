//! Simulations against what can be told by hand, and against what must hold of all.
#![expect(clippy::unwrap_used, reason = "tests")]

mod closed_forms;
mod networks;
mod support;
