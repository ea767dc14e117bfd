//! The tiling search: chooses a tiling for every tensor and a partitioning for every operator, so
//! that a step moves the fewest bytes or takes the least time.
//!
//! [`problem`] describes a network as variables with pairwise costs. [`instance`] and
//! [`candidates`] make min-sum problems of it at a resolution or from some labels; `soybean_minsum`
//! solves them. [`strategy`] and [`coarse_to_fine`] decide which of these problems to solve.
//! [`conversion`] gives the collectives between two tilings.

mod axis_assignment;
mod axis_partition;
mod baselines;
mod candidates;
mod coarse_to_fine;
mod conversion;
mod cost_model;
mod digit_order;
mod dominance;
mod effort;
mod extents;
mod guided;
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

pub(crate) use coarse_to_fine::Depth;
pub(crate) use conversion::divided_axes;
pub use conversion::{halo_exchange, route};
pub use effort::SearchEffort;
pub(crate) use effort::WIDE_GAP;
pub use extents::Padding;
pub(crate) use guided::{ExposedShares, guided, guided_and_near, least_kernel_seconds};
pub(crate) use lagrangian::Lagrangian;
pub(crate) use multipliers::{KernelMultiplier, MemoryMultipliers};
pub use objective::Objective;
pub(crate) use strategy::search_with_baselines;
pub use strategy::{
    Baselines, MAX_WORK, PlanTimes, SearchRequest, SearchResult, Strategy, is_max_work,
    min_sum_problem, search, search_alone,
};
pub use tiled::{Conversion, TiledNetwork};

/// Returns the choice of this name, or an error that lists the names: `unknown strategy ..`.
fn by_name<T: Copy>(
    what: &str,
    plural: &str,
    choices: &[(&'static str, T)],
    name: &str,
) -> Result<T, String> {
    let found = choices.iter().find(|(it, _)| *it == name);
    let known = || choices.iter().map(|it| it.0).collect::<Vec<_>>().join(", ");
    found
        .map(|&(_, choice)| choice)
        .ok_or_else(|| format!("unknown {what} `{name}`; the {plural} are {}", known()))
}

/// Returns the position of an item in a list, and appends it if it is new.
pub(crate) fn number<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    list.iter().position(|it| *it == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}
