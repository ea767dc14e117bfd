//! The dependencies between the steps of a phase.

use soybean_plan::{Kernel, Step, StepNeeds, WorkKind};

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
    let all_needs = StepNeeds::of(steps);
    let mut readers_of: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (at, StepNeeds { reads, .. }) in all_needs.iter().enumerate() {
        reads.iter().for_each(|&it| readers_of[it].push(at));
    }
    let of_step = |(step, StepNeeds { needs, .. }): (&Step, StepNeeds)| Dependencies {
        needs,
        n_readers: 0,
        is_heavy: kernels[step.kernel].work_kind() == WorkKind::Product,
        may_wait: step.results.iter().any(|&it| storage[it].is_persistent),
        bytes: (step.inputs.iter().chain(&step.results))
            .map(|&it| storage[it].bytes() as u64)
            .sum(),
    };
    let mut all: Vec<Dependencies> = steps.iter().zip(all_needs).map(of_step).collect();
    for (at, mut readers) in readers_of.into_iter().enumerate().rev() {
        readers.dedup();
        let is_for_such = !readers.is_empty() && readers.iter().all(|&it| all[it].may_wait);
        let step = &mut all[at];
        step.n_readers = readers.len();
        step.may_wait = !step.is_heavy && (step.may_wait || is_for_such);
    }
    all
}
