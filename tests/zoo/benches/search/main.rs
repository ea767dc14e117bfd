//! The search on the networks of the zoo: results and times.
//!
//! `cargo bench -p soybean-zoo --bench search -- [NETWORK..] [--gpus 2,4,8] [--updates]
//! [--effort standard] [--table docs/planner.md]` measures some networks or all, with thorough
//! searches if no other effort is given. `--updates` trains them with all settings of updates, and
//! `--table` writes the measured rows into that file's table. A user's
//! build runs the same code unoptimized inside the macro, as `--profile dev` does; the table has a
//! column for each.

mod measure;
mod table;

use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
};

use soybean_compiler::SearchEffort;
use soybean_zoo::{Entry, ZOO};

struct Wanted {
    networks: Vec<&'static Entry>,
    gpus: Vec<usize>,
    with_updates: bool,
    effort: SearchEffort,
    table: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let wanted = wanted()?;
    let mut output = io::stdout().lock();
    writeln!(output, "| {} |", table::HEADS.join(" | "))?;
    for entry in wanted.networks {
        let mut rows = Vec::new();
        for &n_gpus in &wanted.gpus {
            let row = measure::measure(entry, n_gpus, wanted.with_updates, wanted.effort)?.row();
            writeln!(output, "{row}")?;
            rows.push(row);
        }
        if let Some(path) = &wanted.table {
            table::update(path, &rows)?;
        }
    }
    Ok(())
}

fn wanted() -> Result<Wanted, Box<dyn Error>> {
    use lexopt::prelude::{Long, Value, ValueExt as _};
    let mut wanted = Wanted {
        networks: Vec::new(),
        gpus: vec![2, 4, 8],
        with_updates: false,
        effort: SearchEffort::Thorough,
        table: None,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("gpus") => {
                let list = parser.value()?.string()?;
                wanted.gpus = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            Long("effort") => wanted.effort = parser.value()?.string()?.parse()?,
            Long("updates") => wanted.with_updates = true,
            Long("table") => wanted.table = Some(parser.value()?.into()),
            // Cargo passes this flag to every benchmark.
            Long("bench") => {}
            Value(name) => wanted.networks.push(network(&name.string()?)?),
            other => return Err(other.unexpected().into()),
        }
    }
    if wanted.with_updates && wanted.table.is_some() {
        return Err("--table has the networks' own optimizers: expected no --updates".into());
    }
    if wanted.effort == SearchEffort::Standard && wanted.table.is_some() {
        return Err("--table has thorough searches: expected no --effort standard".into());
    }
    if wanted.networks.is_empty() {
        wanted.networks = ZOO.iter().collect();
    }
    Ok(wanted)
}

fn network(name: &str) -> Result<&'static Entry, String> {
    let names: Vec<&str> = ZOO.iter().map(|it| it.name).collect();
    let known = || format!("unknown network `{name}`; the networks are {}", names.join(", "));
    ZOO.iter().find(|it| it.name == name).ok_or_else(known)
}
