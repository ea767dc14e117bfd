//! Which work must wait for which: tasks in lanes, and the waits between them. Devices keep to it with streams and events, and simulations of them do too.
//!
//! Every rank runs the same tasks. Those of one lane run in order; those of different lanes, or of different ranks, are ordered only by events. Two tasks conflict where one writes
//! memory that the other reads or writes; the later one then waits for the earlier. Memory is the rank's arena, in bytes, so that buffers that share a place are seen to.

use std::ops::Range;

use crate::AxisSet;

/// One of a rank's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Kernels.
    Compute,
    /// What passes between ranks.
    Communication,
}

impl Lane {
    /// All lanes, in the order of their declaration.
    pub const ALL: [Self; 2] = [Self::Compute, Self::Communication];

    /// The name in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
        }
    }
}

/// What a task does to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where it runs.
    pub lane: Lane,
    /// What it reads of its own rank's memory.
    pub reads: Vec<Range<usize>>,
    /// What it reads of the memory of all ranks that differ from its own along these axes, its own included.
    pub group_reads: Vec<Range<usize>>,
    /// The axes of the group.
    pub axes: AxisSet,
    /// What it writes of its own rank's memory.
    pub writes: Vec<Range<usize>>,
}

/// Before a task: the end of an earlier task, on all ranks that differ along some axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The number of the earlier task.
    pub task: usize,
    /// The axes; none for the rank itself.
    pub axes: AxisSet,
}

/// The waits before each task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// For each task what it waits for.
    pub waits: Vec<Vec<Wait>>,
    /// For each task whether another waits for it.
    pub is_awaited: Vec<bool>,
}

impl Schedule {
    /// The waits that keep these tasks, in the order in which they are queued, from disturbing each other.
    #[must_use]
    pub fn new(tasks: &[Access]) -> Self {
        let mut schedule =
            Self { waits: Vec::with_capacity(tasks.len()), is_awaited: vec![false; tasks.len()] };
        // For each lane what it has waited for already.
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

/// The axes along which ranks must have finished the earlier task before the later one starts: none, the rank's own, or those of a group.
fn conflicts(earlier: &Access, later: &Access) -> impl Iterator<Item = AxisSet> {
    let own = meet(&earlier.writes, &later.reads)
        || meet(&earlier.writes, &later.writes)
        || meet(&earlier.reads, &later.writes);
    // What a rank's group reads of its memory may be written again when all of the group have read it.
    let is_read = meet(&earlier.group_reads, &later.writes);
    let reads = meet(&earlier.writes, &later.group_reads);
    let groups = [(reads, later.axes), (is_read, earlier.axes), (own, AxisSet::default())];
    groups.into_iter().filter(|it| it.0).map(|it| it.1)
}

fn meet(left: &[Range<usize>], right: &[Range<usize>]) -> bool {
    left.iter()
        .any(|left| right.iter().any(|right| left.start < right.end && right.start < left.end))
}

/// Whether the group along `axes` has all ranks of that along `others`.
fn contains(axes: AxisSet, others: AxisSet) -> bool {
    others.iter().all(|axis| axes.contains(axis))
}

#[cfg(test)]
mod tests;
