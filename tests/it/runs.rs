//! Whole runs: their output, and that no interruption changes it.

#![expect(clippy::print_stdout, reason = "measured times, and why a test is skipped")]

mod averages;
mod chaos;
mod faults;
mod fit;
mod resume;
mod signals;
mod small;
