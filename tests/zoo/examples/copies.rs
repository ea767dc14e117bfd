//! The savings of replicas: the table of `docs/planner.md` with and without them.
//!
//! `cargo run --release -p soybean-zoo --example copies` searches each network for 8 GPUs, with
//! free tilings and with all weights partitioned along dim 0.

use std::{
    error::Error,
    io::{self, Write},
};

use soybean_compiler::{Network, Strategy, build_network, optimizer, replicate, tiling::search};
use soybean_plan::{Mesh, Placement, Tiling};
use soybean_zoo::{Entry, ZOO};

const NETWORKS: [&str; 8] =
    ["mlp", "cnn5-wide", "alexnet", "vgg16", "resnet20", "resnet50", "encoder", "gpt-12"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut output = io::stdout().lock();
    let heads = "| network | as it is, MB | with replicas | in parts, MB | with replicas |";
    writeln!(output, "{heads}\n| --- | ---: | ---: | ---: | ---: |")?;
    for name in NETWORKS {
        let entry = ZOO.iter().find(|it| it.name == name).ok_or("a network of the zoo")?;
        let network = network(entry)?;
        let in_parts = in_parts(&network);
        let networks = [&network, &replicate(&network), &in_parts, &replicate(&in_parts)];
        let columns: Vec<String> = networks.map(megabytes).to_vec();
        writeln!(output, "| {name} | {} |", columns.join(" | "))?;
    }
    Ok(())
}

fn mesh() -> Mesh {
    Mesh::new(8)
}

fn network(entry: &Entry) -> Result<Network, String> {
    let optimizer = optimizer(entry.optimizer, &[]).map_err(|it| it.message)?;
    let model = (entry.model)();
    let network = build_network(model.builder, model.loss, &[], &optimizer);
    network.map_err(|faults| format!("{faults:?}"))
}

/// Returns the network with every possible parameter partitioned along dim 0 on all axes.
fn in_parts(network: &Network) -> Network {
    let mesh = mesh();
    let tiling = Tiling::new(&vec![Placement::Split(0); mesh.n_axes()]);
    let pinned =
        |it: Network, &parameter| it.clone().pinned(parameter, tiling, &mesh).unwrap_or(it);
    network.parameters.iter().fold(network.clone(), pinned)
}

/// Returns the bytes of the best plan, with an asterisk if it is not proved optimal.
fn megabytes(network: &Network) -> String {
    let found = search(network, mesh(), &Strategy::Auto.into());
    let mark = if found.is_optimal { "" } else { "*" };
    format!("{:.1}{mark}", found.tiled.bytes() as f64 / 1e6)
}
