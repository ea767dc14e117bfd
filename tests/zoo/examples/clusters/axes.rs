//! Bytes alone do not decide which axes of a plan's mesh are on the slow level: the bytes of that
//! level for each choice.

use soybean_plan::{AxisSet, Collective, Mesh, Program, Topology};

/// Returns the bytes that a training step moves over the slowest level, for each choice of its
/// axes.
pub(crate) fn slow_bytes(program: &Program, topology: &Topology) -> Vec<u64> {
    let mesh = program.tables.mesh;
    let slow: AxisSet =
        (0..mesh.n_axes()).filter(|&axis| topology.level(axis) == topology.level(0)).collect();
    let is_alike = |set: &AxisSet| {
        set.iter().count() == slow.iter().count() && mesh.group_size(*set) == mesh.group_size(slow)
    };
    let choices = (0..1_u16 << mesh.n_axes()).map(AxisSet).filter(is_alike);
    let buckets = program.train[0].iter().filter_map(|it| program.kernels[it.kernel].transfer());
    let collectives: Vec<&Collective> = buckets.flat_map(|it| it.collectives.iter()).collect();
    choices.map(|set| collectives.iter().map(|it| moved_over(it, &mesh, set)).sum()).collect()
}

/// Returns the bytes that a collective moves between ranks that differ along any axis of the set.
fn moved_over(collective: &Collective, mesh: &Mesh, set: AxisSet) -> u64 {
    let group = mesh.group_size(collective.axes) as u64;
    let near = mesh.group_size(AxisSet(collective.axes.0 & !set.0)) as u64;
    collective.bytes(mesh) / (group - 1) * (group - near)
}
