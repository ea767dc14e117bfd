//! The tiling search: how every tensor lies on the mesh, and in which form every operator runs, so that the fewest bytes move.
//!
//! [`problem`] turns a network into variables with pairwise costs, [`strategy`] chooses states for them, with [`solve`] for what costs least, by
//! elimination and lower bounds; [`conversion`] says what a change of tiling costs.

mod bound;
mod conversion;
mod dominance;
mod eliminate;
mod forced;
mod order;
mod pairwise;
mod problem;
mod recursive;
mod solve;
mod space;
mod strategy;
mod tiled;

#[cfg(test)]
mod tests;

pub use conversion::{bytes, route};
pub use strategy::{Baselines, Request, Search, Strategy, search};
pub use tiled::{Conversion, Tiled};
