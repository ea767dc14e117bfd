//! Compares simulations with times computed by hand, and checks properties of all simulations.
#![expect(clippy::unwrap_used, reason = "tests")]

mod closed_forms;
mod networks;
mod support;
