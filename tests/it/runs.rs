//! Whole runs: their output, and that no interruption changes it.

#![expect(clippy::print_stdout, reason = "tests print times, and say why they are skipped")]

mod augmentation;
mod averages;
mod chaos;
mod columns;
mod faults;
mod fit;
mod ignored_labels;
mod leftovers;
mod non_finite;
mod resume;
mod same_run;
mod signals;
mod small;
mod unfinished;
