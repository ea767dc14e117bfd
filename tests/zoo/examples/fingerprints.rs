//! Fingerprints of the zoo's plans: one line per network, number of GPUs and strategy.
//!
//! `cargo run --release -p soybean-zoo --example fingerprints -- [NETWORK..]` compiles each network
//! under every strategy. A line holds a hash of the plan's JSON, with all times as 0, and a hash of
//! the program's text. Two versions of the compiler that print the same lines make the same plans.
//! `scripts/fingerprints.sh` adds the final weights of three trainings.
#![expect(clippy::print_stdout, reason = "it prints a table")]

use std::env;

use soybean_compiler::{Options, Strategy, compile, optimizer, program_text};
use soybean_plan::Precision;
use soybean_zoo::{Entry, Model, ZOO};

const GPUS: [usize; 5] = [2, 4, 8, 16, 64];
const STRATEGIES: [Strategy; 4] =
    [Strategy::Auto, Strategy::Recursive, Strategy::Data, Strategy::Model];

fn main() {
    let wanted: Vec<String> = env::args().skip(1).collect();
    let is_wanted = |entry: &&Entry| wanted.is_empty() || wanted.iter().any(|it| it == entry.name);
    for entry in ZOO.iter().filter(is_wanted) {
        for n_gpus in GPUS {
            for strategy in STRATEGIES {
                let fingerprint = fingerprint(entry, n_gpus, strategy);
                println!("{} {n_gpus} {strategy:?} {fingerprint}", entry.name);
            }
        }
    }
}

fn fingerprint(entry: &Entry, n_gpus: usize, strategy: Strategy) -> String {
    let Model { builder, loss, .. } = (entry.model)();
    let options = Options {
        name: entry.name.to_owned(),
        n_gpus,
        search: strategy.into(),
        precision: Precision::F32,
        optimizer: optimizer(entry.optimizer, &[]).expect("an optimizer of the compiler"),
    };
    let hash = |text: &str| soybean_plan::fingerprint(text.bytes());
    match compile(builder, loss, &[], &options, &|| 0.0) {
        Ok(compiled) => {
            let json = hash(&compiled.report.json());
            let text = hash(&program_text(&compiled.program));
            format!("plan {json:016x} program {text:016x}")
        }
        Err(faults) => format!("refused {:016x}", hash(&faults[0].message)),
    }
}
