//! The plans of default searches beside all others that are known: those of thorough searches,
//! those of experts as closed formulas, and those of searches in which an expert pins a tensor.
//!
//! `cargo bench -p soybean-zoo --bench quality -- [NETWORK..] [--gpus 8,16] [--effort standard]`
//! prints a table of some networks or of all large ones, in Markdown. `--effort standard` leaves
//! thorough searches out. `--quick` compares some networks in seconds, and fails if a plan is worse
//! than the best known one by more than the network's bound.

mod formula;
mod measure;

use std::{
    error::Error,
    io::{self, Write},
};

use soybean_compiler::SearchEffort;
use soybean_zoo::{Entry, LARGE, ZOO};

use crate::measure::Measured;

struct Wanted {
    networks: Vec<&'static Entry>,
    gpus: Vec<usize>,
    effort: SearchEffort,
    is_quick: bool,
}

/// A comparison of `--quick`: the network, the number of GPUs, and the most that bytes of the
/// default plan may be over those of the best known one.
const QUICK: &[(&str, usize, f64)] = &[
    ("encoder", 8, 1.001),
    ("gpt-12", 8, 1.001),
    ("gpt-12", 64, 1.001),
    ("experts", 8, 1.001),
    ("llama-24", 8, 1.005),
    ("dlrm", 8, 1.001),
];

fn main() -> Result<(), Box<dyn Error>> {
    let wanted = wanted()?;
    let mut output = io::stdout().lock();
    writeln!(output, "| {} |\n|{}", measure::HEADS.join(" | "), measure::RULE)?;
    if wanted.is_quick {
        return quick(&mut output);
    }
    for entry in wanted.networks {
        for &n_gpus in &wanted.gpus {
            match Measured::new(entry, n_gpus, wanted.effort) {
                Ok(measured) => writeln!(output, "{measured}")?,
                Err(fault) => writeln!(output, "| {} | {n_gpus} | {fault} |", entry.name)?,
            }
        }
    }
    Ok(())
}

fn quick(output: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut faults = Vec::new();
    for &(name, n_gpus, bound) in QUICK {
        let measured = Measured::new(network(name)?, n_gpus, SearchEffort::Thorough)?;
        writeln!(output, "{measured}")?;
        let ratio = measured.ratio();
        if ratio > bound {
            faults.push(format!("{name} on {n_gpus} GPUs: {ratio:.4}, at most {bound} expected"));
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(format!("default over best known plan: {}", faults.join("; ")).into()),
    }
}

fn wanted() -> Result<Wanted, Box<dyn Error>> {
    use lexopt::prelude::{Long, Value, ValueExt as _};
    let mut wanted = Wanted {
        networks: Vec::new(),
        gpus: vec![8],
        effort: SearchEffort::Thorough,
        is_quick: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("gpus") => {
                let list = parser.value()?.string()?;
                wanted.gpus = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            Long("effort") => wanted.effort = parser.value()?.string()?.parse()?,
            Long("quick") => wanted.is_quick = true,
            // Cargo passes this flag to every benchmark.
            Long("bench") => {}
            Value(name) => wanted.networks.push(network(&name.string()?)?),
            other => return Err(other.unexpected().into()),
        }
    }
    if wanted.networks.is_empty() {
        wanted.networks = LARGE.iter().collect();
    }
    Ok(wanted)
}

fn network(name: &str) -> Result<&'static Entry, String> {
    let all = || LARGE.iter().chain(ZOO);
    let names: Vec<&str> = all().map(|it| it.name).collect();
    let known = || format!("unknown network `{name}`; the networks are {}", names.join(", "));
    all().find(|it| it.name == name).ok_or_else(known)
}
