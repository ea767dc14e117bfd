//! Fusion of rows: reductions along the same rows and the maps around them become one kernel
//! ([`RowFusion`](soybean_plan::RowFusion)).
//!
//! Memory is already planned, so buffers share memory over time, and other steps run between those
//! that are fused. A group of steps is fused only if there is a place at which all its operands are
//! valid, and the bytes that it writes are unused. Values that only the group reads are not stored.

mod group;
mod row_space;

use std::ops::Range;

use soybean_plan::{Kernel, Step, Tables};

use self::{
    group::{Fused, Group},
    row_space::RowSpace,
};
use crate::memory::Memory;

/// The steps before and after a group that may join it.
const WINDOW: Range<usize> = 16..64;
/// The most steps of a group.
const MOST_STEPS: usize = 24;
/// Longer rows are fused only if there are many: one block of threads computes a row.
const LONGEST_OF_FEW: usize = 1 << 14;
/// With as many rows, most multiprocessors of a device are busy.
const MANY_ROWS: usize = 128;

/// Returns the steps of a phase with as many as possible fused along rows. The kernels of fused
/// steps are appended to `kernels`.
#[must_use]
pub fn fuse_rows(steps: &[Step], kernels: &mut Vec<Kernel>, tables: &Tables) -> Vec<Step> {
    let mut steps = steps.to_vec();
    let mut at = 0;
    while at < steps.len() {
        let Some((group, fused)) = best_group(&steps, kernels, tables, at) else {
            at += 1;
            continue;
        };
        let kernel = Kernel::from(fused.kernel).number_in(kernels);
        let step = Step { kernel, inputs: fused.inputs, results: fused.results };
        // The step that moves to this place is examined too.
        at = at.min(group.members.first().copied().unwrap_or(at));
        steps = replaced(steps, &group.members, fused.place, step);
    }
    steps
}

/// Returns the largest group around the reduction at this place, and its kernel.
fn best_group(
    steps: &[Step],
    kernels: &[Kernel],
    tables: &Tables,
    at: usize,
) -> Option<(Group, Fused)> {
    let space = RowSpace::of(kernels.get(steps[at].kernel)?)?;
    if space.row_length() > LONGEST_OF_FEW && space.n_rows() < MANY_ROWS {
        return None;
    }
    let memory = Memory::new(steps, tables);
    let mut group = Group { space, members: vec![at] };
    space.form(&steps[at], kernels, tables)?;
    let mut best = None;
    while group.members.len() < MOST_STEPS {
        let (first, last) = (group.members[0], group.members[group.members.len() - 1]);
        let window = first.saturating_sub(WINDOW.start)..steps.len().min(last + WINDOW.end);
        let joined = window.filter(|it| !group.members.contains(it)).find_map(|step| {
            space.form(&steps[step], kernels, tables)?;
            if !group.is_connected(step, &memory, kernels) {
                return None;
            }
            let larger = group.with(step);
            let fused = larger.fused(&memory, kernels)?;
            Some((larger, fused))
        });
        let Some((larger, fused)) = joined else { break };
        group = larger.clone();
        best = Some((larger, fused));
    }
    best
}

/// Returns the steps with a new one before a place instead of some others.
fn replaced(steps: Vec<Step>, members: &[usize], place: usize, new: Step) -> Vec<Step> {
    let mut new = Some(new);
    let mut all = Vec::with_capacity(steps.len());
    for (at, step) in steps.into_iter().enumerate() {
        if at == place {
            all.extend(new.take());
        }
        if !members.contains(&at) {
            all.push(step);
        }
    }
    all
}

#[cfg(test)]
mod tests;
