//! Checkpoints as users see them: a checkpoint loads under any plan, a damaged one is rejected, and
//! no error loses an earlier one.

#![expect(clippy::print_stdout, reason = "skipped tests say why")]

mod corrupted;
mod disk;
mod environment;
mod folders;
#[cfg(target_os = "linux")]
mod forked;
mod in_python;
mod killed;
mod layouts;
mod network;
mod resume;
mod round_trip;
mod weights;
