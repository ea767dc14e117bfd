//! The tiling search: how every tensor lies on the mesh, and in which form every operator runs, so that the fewest bytes move.
//!
//! [`problem`] turns a network into variables with pairwise costs, [`strategy`] chooses states for them, with [`solve`] for what costs least, by
//! elimination and lower bounds; [`conversion`] says what a change of tiling costs.

mod charge;
mod choices;
mod conversion;
mod counts;
mod dominance;
mod forced;
mod forms;
mod held;
mod layout;
mod objective;
mod optimum;
mod parts;
mod price;
mod priced;
mod problem;
mod recursive;
mod resolution;
mod space;
mod strategy;
mod tiled;
mod turns;
mod view;

pub(crate) use charge::{Charges, Working};
pub use conversion::route;
pub use objective::Objective;
pub(crate) use priced::Priced;
pub use strategy::{Baselines, Request, Search, Strategy, Times, search, search_alone};
pub use tiled::{Conversion, Tiled};

/// The number of an item in its list; equal ones share it.
pub(crate) fn number<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    list.iter().position(|it| *it == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}
