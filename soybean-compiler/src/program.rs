//! From a plan to its program: the passes `order`, `lower`, `overlap` and `plan-memory`.

use soybean_plan::{Program, Topology};

use crate::{
    lower::lower,
    memory::{Placed, plan_memory},
    order::order,
    overlap::overlap,
    tiling::TiledNetwork,
    unplaced::Order,
};

/// Returns the program of a plan for an assumed machine.
#[must_use]
pub fn program(name: &str, tiled: &TiledNetwork) -> Program {
    placed(name, tiled, None).program
}

/// Returns the program of a plan for an assumed machine and ranks with this many bytes of memory;
/// see [`lean_if_over`].
#[must_use]
pub fn program_within(name: &str, tiled: &TiledNetwork, memory: u64) -> Program {
    placed_within(name, tiled, None, Some(memory)).program
}

/// Returns the program of a plan for ranks with this many bytes of memory, and its memory plan.
pub(crate) fn placed_within(
    name: &str,
    tiled: &TiledNetwork,
    topology: Option<&Topology>,
    limit: Option<u64>,
) -> Placed {
    lean_if_over(placed(name, tiled, topology), name, tiled, limit)
}

fn placed(name: &str, tiled: &TiledNetwork, topology: Option<&Topology>) -> Placed {
    let tasks = order(&tiled.network);
    plan_memory(overlap(lower(name, tiled, &tasks, Order::Overlapped), topology))
}

/// Returns the program itself if its arena keeps the limit. Otherwise collectives beside products
/// need too much memory, and the order that needs the least is used if it really needs less.
pub(crate) fn lean_if_over(
    overlapped: Placed,
    name: &str,
    tiled: &TiledNetwork,
    limit: Option<u64>,
) -> Placed {
    let bytes = |placed: &Placed| placed.program.tables.arena_bytes;
    if limit.is_none_or(|limit| bytes(&overlapped) as u64 <= limit) {
        return overlapped;
    }
    let tasks = order(&tiled.network);
    let lean = plan_memory(lower(name, tiled, &tasks, Order::Lean));
    if bytes(&lean) < bytes(&overlapped) { lean } else { overlapped }
}
