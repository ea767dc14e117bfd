//! Plans for bytes and plans for time on each level of a cluster, for networks of the zoo.
//!
//! `cargo run --release -p soybean-zoo --example clusters -- [NETWORK..] [--cluster 2x8-h100-ib]
//! [--table docs/clusters.md]` prints the table, or writes it into that file between its marks.

mod axes;
mod table;

use std::{error::Error, fs, io::Write as _, path::PathBuf};

use soybean_cluster::{preset, preset_names};
use soybean_plan::Cluster;
use soybean_zoo::{Entry, ZOO};

/// The default networks.
const NETWORKS: [&str; 4] = ["alexnet", "vgg16", "resnet50", "gpt-12"];

struct Wanted {
    networks: Vec<&'static Entry>,
    cluster: Cluster,
    table: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let wanted = wanted()?;
    let mut output = std::io::stdout().lock();
    let mut lines = table::head();
    for line in &lines {
        writeln!(output, "{line}")?;
    }
    for entry in &wanted.networks {
        let row = table::row(entry, &wanted.cluster)?;
        writeln!(output, "{row}")?;
        lines.push(row);
    }
    if let Some(path) = wanted.table {
        fs::write(&path, table::replaced(&fs::read_to_string(&path)?, &lines)?)?;
    }
    Ok(())
}

fn wanted() -> Result<Wanted, Box<dyn Error>> {
    use lexopt::prelude::{Long, Value, ValueExt as _};
    let mut names: Vec<String> = Vec::new();
    let (mut cluster, mut table) = ("2x8-h100-ib".to_owned(), None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("cluster") => cluster = parser.value()?.string()?,
            Long("table") => table = Some(parser.value()?.into()),
            Value(name) => names.push(name.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    if names.is_empty() {
        names = NETWORKS.map(str::to_owned).to_vec();
    }
    let unknown = || {
        let known: Vec<&str> = preset_names().collect();
        format!("unknown cluster `{cluster}`; the presets are {}", known.join(", "))
    };
    let networks = names.iter().map(|it| network(it)).collect::<Result<_, _>>()?;
    Ok(Wanted { networks, cluster: preset(&cluster).ok_or_else(unknown)?, table })
}

fn network(name: &str) -> Result<&'static Entry, String> {
    ZOO.iter().find(|it| it.name == name).ok_or_else(|| format!("unknown network `{name}`"))
}
