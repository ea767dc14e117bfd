//! Checkpoints from the outside: what is saved comes back on any plan, what is damaged is refused, and nothing that goes wrong costs an earlier checkpoint.

#![expect(clippy::print_stdout, reason = "what is skipped is for who reads the output")]

mod corrupted;
mod disk;
mod folders;
mod in_python;
mod killed;
mod network;
mod resume;
mod round_trip;
mod surroundings;
mod weights;
