//! The tiling search: how every tensor lies on the mesh, and in which form every operator runs, so that the fewest bytes move.
//!
//! [`problem`] turns a network into variables with pairwise costs, [`strategy`] chooses states for them, with [`solve`] for what costs least, by
//! elimination and lower bounds; [`conversion`] says what a change of tiling costs.

mod axis_assignment;
mod axis_partition;
mod baselines;
mod candidates;
mod coarse_to_fine;
mod conversion;
mod cost_model;
mod digit_order;
mod dominance;
mod instance;
mod lagrangian;
mod memory_tie_break;
mod multipliers;
mod objective;
mod orbits;
mod problem;
mod recursive;
mod resolution;
mod splittable;
mod strategy;
mod tiled;
mod tiling_space;

pub use conversion::route;
pub(crate) use lagrangian::Lagrangian;
pub(crate) use multipliers::{KernelMultiplier, MemoryMultipliers};
pub use objective::Objective;
pub use strategy::{Baselines, Request, Search, Strategy, Times, search, search_alone};
pub use tiled::{Conversion, Tiled};

/// The number of an item in its list; equal ones share it.
pub(crate) fn number<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    list.iter().position(|it| *it == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}
