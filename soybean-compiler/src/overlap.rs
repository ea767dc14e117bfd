//! Overlap: the steps in an order in which a device can communicate while it computes.
//!
//! A device has a lane for kernels and one for collectives, and runs each in the order of the
//! program. This order comes from list scheduling: both lanes are simulated with the times of the
//! cluster, or of an assumed one, and a free lane takes the best step that is ready
//! ([`list_schedule`]):
//!
//! - Most kernels keep their order, which is that of the graph.
//! - *Updates*, and light kernels that serve these alone, wait until their collectives have ended,
//!   so they never block the backward pass. They run as soon as their operands are there, so that
//!   gradients do not stay in memory.
//! - A collective precedes those whose results are needed later. The collectives of updates come
//!   last.
//! - A collective whose operand is available early, such as a weight, starts in time to end before
//!   its reader, but not much sooner, because its result takes memory.

mod list_schedule;

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::{BufferId, Lane, Program, Step, StepNeeds, Topology, WorkKind, lane_spans};

use crate::{
    assumed_cluster::assumed_topology,
    tiling::ExposedShares,
    unplaced::{Storage, Unplaced},
};
use list_schedule::{Job, list_schedule};

/// Reorders the steps of all phases so that a device can communicate while it computes. Times are
/// those of the topology, or without one of an assumed machine.
pub(crate) fn overlap(lowered: Unplaced, topology: Option<&Topology>) -> Unplaced {
    let Unplaced { mut program, storage, contents, .. } = lowered;
    let topology = topology.cloned().unwrap_or_else(|| assumed_topology(program.tables.mesh));
    let training = program.train.iter();
    program.train = training.map(|it| reordered(&program, it, &storage, &topology)).collect();
    program.accumulate = reordered(&program, &program.accumulate, &storage, &topology);
    let evaluations = program.evaluate.iter();
    program.evaluate = evaluations.map(|it| reordered(&program, it, &storage, &topology)).collect();
    Unplaced { program, storage, contents, overlaps_on: Some(topology) }
}

/// Returns the shares of the time of collectives during which a rank has nothing to compute.
pub(crate) fn exposed_shares(program: &Program, topology: &Topology) -> ExposedShares {
    let (mut all, mut exposed) = ([0.0; 2], [0.0; 2]);
    for (n, steps) in program.measured() {
        let of_steps = exposed_seconds(program, steps, topology);
        for kind in 0..2 {
            all[kind] += n as f64 * of_steps.all[kind];
            exposed[kind] += n as f64 * of_steps.exposed[kind];
        }
    }
    let share = |kind: usize| if all[kind] > 0.0 { exposed[kind] / all[kind] } else { 0.0 };
    ExposedShares { kept: share(1), others: share(0) }
}

/// The times of collectives of some steps: first those for which steps wait, then those of kept
/// tensors.
struct CollectiveSeconds {
    all: [f64; 2],
    /// During these, a rank has nothing to compute.
    exposed: [f64; 2],
}

fn exposed_seconds(program: &Program, steps: &[Step], topology: &Topology) -> CollectiveSeconds {
    let needs = StepNeeds::of(steps);
    let durations = topology.durations(program, steps);
    let spans = lane_spans(&needs, &durations);
    let is_collective = |at: usize| durations[at].0 == Lane::Communication;
    let tables = &program.tables;
    let stays: BTreeSet<BufferId> = (tables.parameters.iter().map(|it| it.buffer))
        .chain(tables.states.iter().map(|it| it.buffer))
        .collect();
    let is_update = |at: usize| steps[at].results.iter().any(|it| stays.contains(it));
    // Kernels between a kept buffer and a collective, such as those that round, count as kept.
    let comes_from_kept = |at: usize| match needs[at].reads[..] {
        [] => steps[at].inputs.iter().any(|it| stays.contains(it)),
        [before] => steps[before].inputs.iter().all(|it| stays.contains(it)),
        _ => false,
    };
    let mut is_read_otherwise = vec![false; steps.len()];
    for at in (0..steps.len()).filter(|&at| !is_update(at)) {
        needs[at].reads.iter().for_each(|&it| is_read_otherwise[it] = true);
    }
    let is_kept = |at: usize| !is_read_otherwise[at] || comes_from_kept(at);
    let (mut all, mut exposed) = ([0.0; 2], [0.0; 2]);
    let mut free = 0.0;
    for at in 0..steps.len() {
        if is_collective(at) {
            all[usize::from(is_kept(at))] += durations[at].1;
            continue;
        }
        let last = needs[at].needs.iter().copied().filter(|&it| is_collective(it));
        let last = last.max_by(|&one, &other| spans[one][1].total_cmp(&spans[other][1]));
        if let Some(collective) = last {
            exposed[usize::from(is_kept(collective))] += f64::max(spans[at][0] - free, 0.0);
        }
        free = spans[at][1];
    }
    CollectiveSeconds { all, exposed }
}

/// Returns the steps in the order in which they start if collectives run beside kernels.
pub(crate) fn reordered(
    program: &Program,
    steps: &[Step],
    storage: &[Storage],
    topology: &Topology,
) -> Vec<Step> {
    let durations = topology.durations(program, steps);
    let job = |((step, needs), (lane, seconds)): ((&Step, StepNeeds), (Lane, f64))| Job {
        lane,
        seconds,
        is_heavy: program.kernels[step.kernel].work_kind() == WorkKind::Product,
        is_update: step.results.iter().any(|&it| storage[it].is_persistent),
        needs,
    };
    let needs = StepNeeds::of(steps);
    let jobs: Vec<Job> = steps.iter().zip(needs).zip(durations).map(job).collect();
    list_schedule(&jobs).into_iter().map(|it| steps[it].clone()).collect()
}

/// Returns, for each collective, the last step that begins before it ends. Its memory must not be
/// reused until then.
pub(crate) fn ends(
    program: &Program,
    steps: &[Step],
    topology: &Topology,
) -> BTreeMap<usize, usize> {
    let durations = topology.durations(program, steps);
    let spans = lane_spans(&StepNeeds::of(steps), &durations);
    let is_collective = |at: &usize| durations[*at].0 == Lane::Communication;
    // Kernels start in order.
    let kernels: Vec<usize> = (0..steps.len()).filter(|it| !is_collective(it)).collect();
    let last = |at: usize| {
        let n_begun = kernels.partition_point(|&it| spans[it][0] < spans[at][1]);
        (at, kernels[..n_begun].last().map_or(at, |&it| it.max(at)))
    };
    (0..steps.len()).filter(is_collective).map(last).collect()
}
