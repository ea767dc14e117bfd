//! The dependencies between the steps of a phase.

use std::collections::BTreeMap;

use soybean_plan::{BufferId, Kernel, Step, WorkKind};

use crate::unplaced::Storage;

/// The dependencies of a step.
pub(super) struct Dependencies {
    /// The earlier steps that write its inputs, and those that read or write what it overwrites.
    pub(super) needs: Vec<usize>,
    /// The number of steps that read its results.
    pub(super) n_readers: usize,
    /// True if it takes long enough to hide a collective.
    pub(super) is_heavy: bool,
    /// True if it may come later: it is light, and it writes what is kept from step to step, or
    /// such steps alone need it.
    pub(super) may_wait: bool,
    /// The bytes that it reads and writes on each rank.
    pub(super) bytes: u64,
}

pub(super) fn dependencies(
    steps: &[Step],
    kernels: &[Kernel],
    storage: &[Storage],
) -> Vec<Dependencies> {
    let mut writer: BTreeMap<BufferId, usize> = BTreeMap::new();
    let mut readers: BTreeMap<BufferId, Vec<usize>> = BTreeMap::new();
    let mut all: Vec<Dependencies> = Vec::with_capacity(steps.len());
    let mut readers_of: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (at, step) in steps.iter().enumerate() {
        let reads = step.inputs.iter().filter_map(|it| writer.get(it)).copied();
        let overwrites = step.results.iter().filter_map(|it| writer.get(it)).copied();
        let before = step.results.iter().filter_map(|it| readers.get(it)).flatten().copied();
        reads.clone().for_each(|it| readers_of[it].push(at));
        let needs = reads.chain(overwrites).chain(before).collect();
        let buffers = step.inputs.iter().chain(&step.results);
        all.push(Dependencies {
            needs,
            n_readers: 0,
            is_heavy: kernels[step.kernel].work_kind() == WorkKind::Product,
            may_wait: step.results.iter().any(|&it| storage[it].is_persistent),
            bytes: buffers.map(|&it| storage[it].bytes() as u64).sum(),
        });
        step.inputs.iter().for_each(|&it| readers.entry(it).or_default().push(at));
        writer.extend(step.results.iter().map(|&it| (it, at)));
    }
    for (at, mut readers) in readers_of.into_iter().enumerate().rev() {
        readers.dedup();
        let is_for_such = !readers.is_empty() && readers.iter().all(|&it| all[it].may_wait);
        let step = &mut all[at];
        step.n_readers = readers.len();
        step.may_wait = !step.is_heavy && (step.may_wait || is_for_such);
    }
    all
}
