//! Whole runs: what they leave behind, and that interruptions of all kinds change nothing of it.

#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::print_stdout, reason = "measured times, and why a test is skipped")]

#[path = "runs/averaged.rs"]
mod averaged;
#[path = "runs/averages.rs"]
mod averages;
#[path = "runs/chaos.rs"]
mod chaos;
#[path = "support/example.rs"]
mod example;
#[path = "runs/faults.rs"]
mod faults;
#[path = "runs/fit.rs"]
mod fit;
#[path = "runs/resume.rs"]
mod resume;
#[path = "runs/signals.rs"]
mod signals;
#[path = "runs/small.rs"]
mod small;
