//! Errors of operators, measured against double precision.
#![expect(clippy::unwrap_used, reason = "tests")]

mod functions;
mod integers;
mod pairs;
mod reductions;
