//! Plans of networks with one long text: the tables of `docs/long-texts.md`.
//!
//! `cargo run --release -p soybean-zoo --example sequences` prints the page's tables.

use std::{
    error::Error,
    io::{self, Write},
};

use soybean_compiler::{Compiled, Options, SearchRequest, Strategy, compile, optimizer};
use soybean_plan::Precision;
use soybean_zoo::{GPT, Model, Transformer};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const GPUS: usize = 8;

/// GPT-2 small with a batch of one text.
const ONE_TEXT: Transformer = Transformer { batch: 1, ..GPT };

fn main() -> Result<()> {
    let mut output = io::stdout().lock();
    let networks = [
        ("12 heads", ONE_TEXT),
        ("2 heads", Transformer { n_heads: 2, ..ONE_TEXT }),
        ("25 heads", Transformer { n_heads: 25, width: 1600, ..ONE_TEXT }),
    ];
    for tokens in [8192, 32_768] {
        for (name, network) in networks {
            for strategy in [Strategy::Auto, Strategy::Data, Strategy::Model] {
                let compiled = compiled(Transformer { tokens, ..network }.decoder(), strategy)?;
                let report = &compiled.report;
                writeln!(
                    output,
                    "{tokens} {name} {strategy:?} | {:.1} MB | {:.2} GiB | {:.3} | {:?}",
                    report.bytes_total as f64 / 1e6,
                    compiled.program.tables.arena_bytes as f64 / (1_u64 << 30) as f64,
                    report.work,
                    report.parallelism(),
                )?;
                for value in report.search().tiled.network.graph.values() {
                    let tiled = &report.search().tiled;
                    let text = tiled.network.graph.line(value).to_string();
                    if text.contains("attention") && std::env::var_os("SHOW").is_some() {
                        writeln!(output, "{text} {:?}", tiled.forms[value.index()])?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn compiled(model: Model, strategy: Strategy) -> Result<Compiled> {
    let Model { builder, loss, .. } = model;
    let options = Options {
        name: "gpt".to_owned(),
        n_gpus: GPUS,
        search: SearchRequest { strategy, ..SearchRequest::default() },
        precision: Precision::F32,
        optimizer: optimizer("adamw", &[]).map_err(|it| it.message)?,
    };
    compile(builder, loss, &[], &options, &|| 0.0).map_err(|faults| format!("{faults:?}").into())
}
