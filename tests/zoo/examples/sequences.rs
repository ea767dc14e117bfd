//! Plans of networks that read one long text: the tables of `docs/long-sequences.md`.
//!
//! `cargo run --release -p soybean-zoo --example sequences` prints them.

use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, Write},
};

use soybean_compiler::{Compiled, MAX_WORK, Options, SearchRequest, Strategy, compile, optimizer};
use soybean_plan::Precision;
use soybean_zoo::{GPT, Model, Transformer};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const N_GPUS: usize = 8;
/// The keys of a sliding window.
const WINDOW: usize = 1024;
/// GPT-2 small with one text in a batch.
const ONE_TEXT: Transformer = Transformer { batch: 1, ..GPT };

/// Networks by their heads, with features for 64 or, of 2 heads, 384 of each.
const NETWORKS: [(&str, Transformer); 3] = [
    ("12", ONE_TEXT),
    ("2", Transformer { n_heads: 2, ..ONE_TEXT }),
    ("25", Transformer { n_heads: 25, width: 1600, ..ONE_TEXT }),
];
/// The last plans may pad heads.
const PLANS: [(&str, Strategy, f64); 4] = [
    ("`auto`", Strategy::Auto, MAX_WORK),
    ("`data`", Strategy::Data, MAX_WORK),
    ("`model`", Strategy::Model, MAX_WORK),
    ("`auto`, `max_work = 1.3`", Strategy::Auto, 1.3),
];

fn main() -> Result<()> {
    let mut output = io::stdout().lock();
    for tokens in [8192, 32_768] {
        writeln!(output, "\n## {tokens} tokens\n")?;
        writeln!(output, "| heads | strategy | attention | most dense layers | MB | GiB | work |")?;
        writeln!(output, "| ---: | --- | --- | --- | ---: | ---: | ---: |")?;
        for (heads, network) in NETWORKS {
            for (name, strategy, max_work) in PLANS {
                let request = SearchRequest { strategy, max_work, ..SearchRequest::default() };
                let model = Transformer { tokens, ..network }.decoder();
                let compiled = compiled(model, N_GPUS, request)?;
                writeln!(output, "| {heads} | {name} | {} |", cells(&compiled))?;
            }
        }
    }
    writeln!(output, "\n## Sliding windows of {WINDOW} of 32768 tokens\n")?;
    writeln!(
        output,
        "| heads | GPUs | attention | most dense layers | MB | GiB | work | MB without a window |"
    )?;
    writeln!(output, "| ---: | ---: | --- | --- | ---: | ---: | ---: | ---: |")?;
    for (heads, network) in NETWORKS {
        for n_gpus in [2, 4, N_GPUS] {
            let network = Transformer { tokens: 32_768, ..network };
            let models = [network.decoder_with_window(WINDOW), network.decoder()];
            let [window, all] = models.map(|it| compiled(it, n_gpus, SearchRequest::default()));
            let all = all?.report.bytes_total as f64 / 1e6;
            writeln!(output, "| {heads} | {n_gpus} | {} | {all:.0} |", cells(&window?))?;
        }
    }
    Ok(())
}

/// Returns the parallelism of attention and of most dense layers, the bytes of a step, the memory
/// of a GPU, and the work.
fn cells(compiled: &Compiled) -> String {
    let report = &compiled.report;
    // Attention is in no layer; all others are dense.
    let (own, dense): (Vec<_>, Vec<_>) =
        report.parallelism().into_iter().partition(|it| it.0.is_empty());
    let attention = own.first().map_or("", |it| &it.1.forward);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, parallelism) in &dense {
        *counts.entry(&parallelism.forward).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|it| it.1).map_or("", |it| it.0);
    let (megabytes, gibibytes) = (
        report.bytes_total as f64 / 1e6,
        compiled.program.tables.arena_bytes as f64 / (1_u64 << 30) as f64,
    );
    format!("{attention} | {most} | {megabytes:.0} | {gibibytes:.2} | {:.3}", report.work)
}

fn compiled(model: Model, n_gpus: usize, search: SearchRequest) -> Result<Compiled> {
    let Model { builder, loss, .. } = model;
    let options = Options {
        name: "gpt".to_owned(),
        n_gpus,
        search,
        precision: Precision::F32,
        optimizer: optimizer("adamw", &[]).map_err(|it| it.message)?,
    };
    compile(builder, loss, &[], &options, &|| 0.0).map_err(|faults| format!("{faults:?}").into())
}
