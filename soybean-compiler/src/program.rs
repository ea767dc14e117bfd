//! From a plan to its program: the passes `order`, `lower`, `overlap`, `bucket` and `plan-memory`.

use soybean_plan::{Program, Topology};

use crate::{
    bucket::bucket,
    lower::lower,
    memory::{Placed, plan_memory},
    order::order,
    overlap::overlap,
    tiling::TiledNetwork,
    unplaced::{Order, Unplaced},
};

/// Returns the program of a plan for an assumed machine.
#[must_use]
pub fn program(name: &str, tiled: &TiledNetwork) -> Program {
    bucketed(name, tiled, None).program
}

/// Returns the program of a plan in which each collective is a step of its own, for a machine, or
/// without one for an assumed machine. It computes the same numbers and moves the same bytes as the
/// program with buckets.
#[must_use]
pub fn program_without_buckets(
    name: &str,
    tiled: &TiledNetwork,
    topology: Option<&Topology>,
) -> Program {
    plan_memory(overlapped(name, tiled, topology)).program
}

/// Returns the program of a plan for an assumed machine and ranks with this many bytes of memory;
/// see [`lean_if_over`].
#[must_use]
pub fn program_within(name: &str, tiled: &TiledNetwork, memory: u64) -> Program {
    lean_if_over(bucketed(name, tiled, None), name, tiled, None, Some(memory)).program
}

/// Returns the program of a plan on a machine, or without one on an assumed machine, for ranks with
/// this many bytes of memory.
pub(crate) fn placed_within(
    name: &str,
    tiled: &TiledNetwork,
    topology: Option<&Topology>,
    limit: Option<u64>,
) -> Placed {
    lean_if_over(bucketed(name, tiled, topology), name, tiled, topology, limit)
}

/// Returns the memory plan of the program with the least memory in which collectives run beside
/// products, or of one that needs less if that exceeds the limit.
pub(crate) fn smallest_within(
    name: &str,
    tiled: &TiledNetwork,
    topology: Option<&Topology>,
    limit: u64,
) -> Placed {
    let overlapped = plan_memory(overlapped(name, tiled, topology));
    smaller_if_over(overlapped, Some(limit), &[&|| lean(name, tiled)])
}

/// Returns the program itself if its arena keeps the limit. Otherwise buckets and collectives
/// beside products need too much memory: the same program without buckets is used if it keeps the
/// limit, else the order that needs the least.
pub(crate) fn lean_if_over(
    bucketed: Placed,
    name: &str,
    tiled: &TiledNetwork,
    topology: Option<&Topology>,
    limit: Option<u64>,
) -> Placed {
    let without_buckets = || plan_memory(overlapped(name, tiled, topology));
    smaller_if_over(bucketed, limit, &[&without_buckets, &|| lean(name, tiled)])
}

/// Returns the first program whose arena keeps the limit, or the one with the smallest arena.
fn smaller_if_over(first: Placed, limit: Option<u64>, others: &[&dyn Fn() -> Placed]) -> Placed {
    let bytes = |placed: &Placed| placed.program.tables.arena_bytes;
    let fits = |placed: &Placed| limit.is_none_or(|limit| bytes(placed) as u64 <= limit);
    let mut smallest = first;
    for other in others {
        if fits(&smallest) {
            break;
        }
        let other = other();
        if bytes(&other) < bytes(&smallest) {
            smallest = other;
        }
    }
    smallest
}

fn overlapped(name: &str, tiled: &TiledNetwork, topology: Option<&Topology>) -> Unplaced {
    let lowered = lower(name, tiled, &order(&tiled.network), Order::Overlapped);
    overlap(lowered, topology)
}

fn bucketed(name: &str, tiled: &TiledNetwork, topology: Option<&Topology>) -> Placed {
    plan_memory(bucket(overlapped(name, tiled, topology)))
}

fn lean(name: &str, tiled: &TiledNetwork) -> Placed {
    plan_memory(lower(name, tiled, &order(&tiled.network), Order::Lean))
}
