//! Steps with and without buckets of collectives: their number, and simulated times.
//!
//! `cargo run --release -p soybean-zoo --example buckets -- [NETWORK..]` prints the table of
//! `docs/clusters.md`.

use std::{
    error::Error,
    io::{self, Write as _},
};

use soybean_cluster::preset;
use soybean_compiler::{
    Compiled, Options, SearchRequest, compile, optimizer, program_without_buckets,
};
use soybean_plan::{Cluster, Precision, Program};
use soybean_simulator::{Settings, Transport, simulate};
use soybean_zoo::{Entry, Model, ZOO};

const PRESETS: [&str; 2] = ["dgx-h100", "pcie-4x4090"];
const NETWORKS: [&str; 7] =
    ["gpt-12", "gpt-24", "resnet50", "inception-v3", "vgg16", "alexnet", "encoder"];
const HEADS: [&str; 5] =
    ["network", "cluster", "steps without", "steps with", "simulated ms, direct / rings"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = NETWORKS.map(str::to_owned).to_vec();
    }
    let mut output = io::stdout().lock();
    writeln!(output, "| {} |\n|{}", HEADS.join(" | "), " --- |".repeat(HEADS.len()))?;
    for name in &names {
        let entry = ZOO.iter().find(|it| it.name == name).ok_or("expected a network of the zoo")?;
        for cluster in PRESETS.iter().filter_map(|it| preset(it)) {
            writeln!(output, "{}", row(entry, &cluster)?)?;
        }
    }
    Ok(())
}

fn row(entry: &Entry, cluster: &Cluster) -> Result<String, Box<dyn Error>> {
    let Model { builder, loss, .. } = (entry.model)();
    let options = Options {
        name: entry.name.to_owned(),
        n_gpus: cluster.n_gpus(),
        search: SearchRequest { cluster: Some(cluster.clone()), ..SearchRequest::default() },
        precision: Precision::F32,
        optimizer: optimizer(entry.optimizer, &[]).map_err(|it| it.message)?,
    };
    let Compiled { program, report } =
        compile(builder, loss, &[], &options, &|| 0.0).map_err(|it| format!("{it:?}"))?;
    let found = report.search();
    let alone = program_without_buckets(entry.name, &found.tiled, found.topology.as_ref());
    let [before, after] = [&alone, &*program].map(|it| times(it, cluster));
    Ok(format!(
        "| {} | {} | {} | {} | {} -> {} |",
        entry.name,
        cluster.name,
        n_steps(&alone),
        n_steps(&program),
        before?,
        after?
    ))
}

/// Returns the number of steps that move data between ranks.
fn n_steps(program: &Program) -> usize {
    program.train[0].iter().filter(|it| program.kernels[it.kernel].transfer().is_some()).count()
}

/// Returns the simulated times with both transports.
fn times(program: &Program, cluster: &Cluster) -> Result<String, Box<dyn Error>> {
    let seconds = |transport| {
        let settings = Settings { transport, ..Settings::default() };
        simulate(program, cluster, &settings).map(|it| it.seconds * 1e3)
    };
    let (direct, rings) = (seconds(Transport::Direct)?, seconds(Transport::Rings)?);
    Ok(format!("{direct:.3} / {rings:.3}"))
}
