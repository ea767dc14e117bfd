//! Whole runs: what they leave behind, and that interruptions of all kinds change nothing of it.

#![expect(clippy::print_stdout, reason = "measured times, and why a test is skipped")]

mod averages;
mod chaos;
mod faults;
mod fit;
mod resume;
mod signals;
mod small;
