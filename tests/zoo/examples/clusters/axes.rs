//! A plan with the axes of its mesh in another order: which of them lies on the slow level is nothing that bytes tell.

use soybean_compiler::{signature::Form, tiling::Tiled};
use soybean_plan::{AxisSet, Mesh, Tiling, Topology};

/// The bytes that a plan moves over the slowest level, for each way to choose the axes that lie on it.
pub(crate) fn slow_bytes(tiled: &Tiled, topology: &Topology) -> Vec<u64> {
    let mesh = topology.mesh();
    let slow: Vec<usize> =
        (0..mesh.n_axes()).filter(|&axis| topology.level(axis) == topology.level(0)).collect();
    let n_slow: usize = slow.iter().map(|&axis| mesh.size(axis)).product();
    let chosen = (0..1_u16 << mesh.n_axes())
        .map(AxisSet)
        .filter(|set| set.iter().count() == slow.len() && mesh.group_size(*set) == n_slow);
    chosen.map(|set| moved_over(&permuted(tiled, &order(&mesh, set)), slow.len())).collect()
}

/// The axes with those of the set first.
fn order(mesh: &Mesh, first: AxisSet) -> Vec<usize> {
    let others = (0..mesh.n_axes()).filter(|&axis| !first.contains(axis));
    first.iter().chain(others).collect()
}

/// The plan whose axis `i` is the axis `order[i]` of this one.
fn permuted(tiled: &Tiled, order: &[usize]) -> Tiled {
    let sizes: Vec<usize> = order.iter().map(|&axis| tiled.mesh.size(axis)).collect();
    let placements = |tiling: &Tiling| {
        Tiling::new(&order.iter().map(|&axis| tiling.on(axis)).collect::<Vec<_>>())
    };
    let form = |form: &Form| Form(order.iter().map(|&axis| form.0[axis]).collect());
    Tiled {
        network: tiled.network.clone(),
        mesh: Mesh::of(&sizes),
        tilings: tiled.tilings.iter().map(placements).collect(),
        forms: tiled.forms.iter().map(|it| it.as_ref().map(form)).collect(),
    }
}

/// The bytes that the conversions of a plan move over the first axes of its mesh.
fn moved_over(tiled: &Tiled, n_axes: usize) -> u64 {
    let program = soybean_compiler::lower("plan", tiled);
    let collectives = program.train.iter().filter_map(|it| match &program.kernels[it.kernel] {
        soybean_plan::Kernel::Communicate(collective) => Some(collective),
        _ => None,
    });
    collectives.flat_map(|it| it.bytes_per_axis(&tiled.mesh).into_iter().take(n_axes)).sum()
}
