//! Tests of checkpoints and weights with a state in memory, without a trainer.
#![expect(clippy::unwrap_used, reason = "tests")]

mod hostile;
mod leftovers;
mod memory_state;
mod round_trip;
mod weights;
