//! Overlap: the steps in an order in which a device can communicate while it computes.
//!
//! A device has a lane for kernels and one for collectives, and runs each in the order of the
//! program. This order comes from list scheduling: both lanes are simulated with the times of the
//! cluster, or of a typical one, and a free lane takes the best step that is ready
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

use std::{borrow::Cow, collections::BTreeMap};

use soybean_plan::{
    Device, Lane, Level, Mesh, Program, Step, StepNeeds, Topology, WorkKind, lane_spans,
};

use crate::unplaced::{Storage, Unplaced};
use list_schedule::{Job, list_schedule};

/// Reorders the steps of both phases so that a device can communicate while it computes. Times are
/// those of the topology, or without one of a typical cluster.
pub(crate) fn overlap(lowered: Unplaced, topology: Option<&Topology>) -> Unplaced {
    let Unplaced { mut program, storage, contents, .. } = lowered;
    let topology = topology.cloned().unwrap_or_else(|| typical(program.tables.mesh));
    program.train = reordered(&program, &program.train, &storage, &topology);
    program.evaluate = reordered(&program, &program.evaluate, &storage, &topology);
    Unplaced { program, storage, contents, overlaps_on: Some(topology) }
}

/// Returns GPUs as fast as an H100, joined by PCIe 5: with slow links, the memory of collectives is
/// not reused too early on other machines. Sources: H100 data sheet, NVIDIA 2023; the launch, the
/// latency and the efficiency are assumed.
fn typical(mesh: Mesh) -> Topology {
    let device = Device {
        name: Cow::Borrowed("typical GPUs"),
        f32_flops: 67e12,
        tf32_flops: 494.5e12,
        bf16_flops: 989.5e12,
        memory_bytes_per_second: 3.35e12,
        memory_bytes: 80_000_000_000,
        launch_seconds: 3e-6,
        efficiency: 0.7,
    };
    let link = Level {
        name: Cow::Borrowed("gpus"),
        count: 1,
        link_bytes_per_second: 64e9,
        gpus_per_link: 1,
        latency_seconds: 5e-6,
    };
    Topology::flat(mesh, device, link)
}

fn reordered(
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
