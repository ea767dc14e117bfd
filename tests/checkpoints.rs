//! Checkpoints from the outside: what is saved comes back on any plan, what is damaged is refused, and nothing that goes wrong costs an earlier checkpoint.

#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::print_stdout, reason = "what is skipped is for who reads the output")]

#[path = "checkpoints/corrupted.rs"]
mod corrupted;
#[path = "checkpoints/disk.rs"]
mod disk;
#[path = "checkpoints/folders.rs"]
mod folders;
#[path = "checkpoints/in_python.rs"]
mod in_python;
#[path = "checkpoints/killed.rs"]
mod killed;
#[path = "support/models.rs"]
mod models;
#[path = "checkpoints/network.rs"]
mod network;
#[path = "support/python.rs"]
mod python;
#[path = "checkpoints/resume.rs"]
mod resume;
#[path = "checkpoints/round_trip.rs"]
mod round_trip;
#[path = "checkpoints/surroundings.rs"]
mod surroundings;
#[path = "checkpoints/weights.rs"]
mod weights;
