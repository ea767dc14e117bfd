//! The dependencies between tasks in lanes. Devices enforce them with streams and events, and the
//! simulator follows them.
//!
//! Every rank runs the same tasks. Tasks of one lane run in order. Tasks of different lanes, or of
//! different ranks, are ordered only by events. Two tasks conflict if one writes memory that the
//! other reads or writes; the later one then waits for the earlier one. Memory means byte ranges of
//! the rank's arena, so buffers that share memory conflict.

use std::ops::Range;

use crate::AxisSet;

/// One of a rank's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Kernels.
    Compute,
    /// Transfers between ranks.
    Communication,
}

impl Lane {
    /// All lanes, in the order of their declaration.
    pub const ALL: [Self; 2] = [Self::Compute, Self::Communication];

    /// Returns the name in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
        }
    }
}

/// The memory that a task reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The lane in which it runs.
    pub lane: Lane,
    /// The ranges of its own rank's memory that it reads.
    pub reads: Vec<Range<usize>>,
    /// The ranges of memory that it reads on all ranks that differ from its own along these axes,
    /// including its own.
    pub group_reads: Vec<Range<usize>>,
    /// The axes of the group.
    pub axes: AxisSet,
    /// The ranges of its own rank's memory that it writes.
    pub writes: Vec<Range<usize>>,
}

/// A dependency of a task: the end of an earlier task on all ranks that differ along some axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The number of the earlier task.
    pub task: usize,
    /// The axes; empty for the rank itself.
    pub axes: AxisSet,
}

/// The waits before each task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The dependencies of each task.
    pub waits: Vec<Vec<Wait>>,
    /// True for each task that another one waits for.
    pub is_awaited: Vec<bool>,
}

impl Schedule {
    /// Returns the waits that keep conflicting tasks in the order in which they are queued.
    #[must_use]
    pub fn new(tasks: &[Access]) -> Self {
        let mut schedule =
            Self { waits: Vec::with_capacity(tasks.len()), is_awaited: vec![false; tasks.len()] };
        // The waits of each lane so far.
        let mut known: [Vec<(Lane, Wait)>; 2] = [Vec::new(), Vec::new()];
        for (number, task) in tasks.iter().enumerate() {
            let mut waits = Vec::new();
            let known = &mut known[task.lane as usize];
            for (earlier, other) in tasks[..number].iter().enumerate().rev() {
                for axes in conflicts(other, task) {
                    let is_own = axes == AxisSet::default();
                    let covers = |it: &(Lane, Wait)| {
                        it.0 == other.lane && it.1.task >= earlier && contains(it.1.axes, axes)
                    };
                    if is_own && other.lane == task.lane || known.iter().any(covers) {
                        continue;
                    }
                    let wait = Wait { task: earlier, axes };
                    known.retain(|it| {
                        it.0 != other.lane || it.1.task > earlier || !contains(axes, it.1.axes)
                    });
                    known.push((other.lane, wait));
                    waits.push(wait);
                    schedule.is_awaited[earlier] = true;
                }
            }
            schedule.waits.push(waits);
        }
        schedule
    }
}

/// Returns the axes along which ranks must finish the earlier task before the later one starts:
/// none for the rank itself, or those of a group.
fn conflicts(earlier: &Access, later: &Access) -> impl Iterator<Item = AxisSet> {
    let own = meet(&earlier.writes, &later.reads)
        || meet(&earlier.writes, &later.writes)
        || meet(&earlier.reads, &later.writes);
    // Memory that the group of a rank reads may be written again after all of the group have read
    // it.
    let is_read = meet(&earlier.group_reads, &later.writes);
    let reads = meet(&earlier.writes, &later.group_reads);
    let groups = [(reads, later.axes), (is_read, earlier.axes), (own, AxisSet::default())];
    groups.into_iter().filter(|it| it.0).map(|it| it.1)
}

fn meet(left: &[Range<usize>], right: &[Range<usize>]) -> bool {
    left.iter()
        .any(|left| right.iter().any(|right| left.start < right.end && right.start < left.end))
}

/// Returns true if the group along `axes` contains all ranks of the group along `others`.
fn contains(axes: AxisSet, others: AxisSet) -> bool {
    others.iter().all(|axis| axes.contains(axis))
}

#[cfg(test)]
mod tests;
