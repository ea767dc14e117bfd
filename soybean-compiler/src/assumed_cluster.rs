//! The machines that are assumed where no cluster is named. Sources of all figures: the data sheets
//! of H100 and DGX H100, NVIDIA 2023; launches, latencies and the efficiency are assumed.

use std::borrow::Cow;

use soybean_plan::{Cluster, Device, Level, Measurements, Mesh, Topology};

/// The GPUs of a node.
const NODE: usize = 8;

const H100: Device = Device {
    name: Cow::Borrowed("H100 SXM"),
    f32_flops: 67e12,
    tf32_flops: 494.5e12,
    bf16_flops: 989.5e12,
    memory_bytes_per_second: 3.35e12,
    memory_bytes: 80_000_000_000,
    launch_seconds: 3e-6,
    efficiency: 0.7,
};

/// Returns a link of which each GPU has its own.
fn link(name: &'static str, count: usize, bytes_per_second: f64, latency_seconds: f64) -> Level {
    Level {
        name: Cow::Borrowed(name),
        count,
        link_bytes_per_second: bytes_per_second,
        gpus_per_link: 1,
        latency_seconds,
    }
}

/// Returns the cluster for the objective `time`: nodes of eight H100 with NVLink, and a network
/// card for each GPU.
pub(crate) fn assumed_cluster(n_gpus: usize) -> Cluster {
    let gpus = link("gpus", NODE, 450e9, 3e-6);
    let n_nodes = n_gpus.div_ceil(NODE);
    let levels = match n_nodes {
        0 | 1 => vec![gpus],
        _ => vec![link("nodes", n_nodes, 50e9, 8e-6), gpus],
    };
    Cluster {
        name: Cow::Borrowed("H100 (assumed)"),
        levels: levels.into(),
        device: H100,
        measurements: Measurements::default(),
    }
}

/// Returns the topology for which steps are ordered: H100s joined by PCIe 5. With slow links, the
/// memory of collectives is not reused too early on other machines.
pub(crate) fn assumed_topology(mesh: Mesh) -> Topology {
    Topology::flat(mesh, H100, link("gpus", 1, 64e9, 1e-5))
}
