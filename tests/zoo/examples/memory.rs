//! The table of `docs/memory.md`: one GPT on 8 GPUs with decreasing memory.
#![expect(clippy::print_stdout, reason = "it prints a table")]

use std::time::Instant;

use soybean_compiler::{Content, Options, SearchRequest, Strategy, compile, optimizer};
use soybean_plan::{Precision, parse_bytes, readable_bytes};
use soybean_zoo::{Model, Transformer};

/// 2.8 * 10^9 parameters.
const GPT: Transformer = Transformer {
    batch: 24,
    tokens: 1024,
    width: 2560,
    n_heads: 20,
    n_blocks: 32,
    n_words: 50_304,
};

fn main() {
    println!(
        "| strategy | memory | bytes moved | at least | held | parameters | states | activations | seconds |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    row(Strategy::Data, None);
    let limits = ["24GiB", "22GiB", "20.5GiB", "20GiB"];
    for limit in [None].into_iter().chain(limits.map(Some)) {
        row(Strategy::Auto, limit);
    }
}

fn row(strategy: Strategy, limit: Option<&str>) {
    let Model { builder, loss, .. } = GPT.decoder();
    let memory = limit.map(|it| parse_bytes(it).expect("a size"));
    let options = Options {
        name: "gpt".to_owned(),
        n_gpus: 8,
        search: SearchRequest { strategy, memory, ..SearchRequest::default() },
        precision: Precision::F32,
        optimizer: optimizer("adam", &[]).expect("known"),
    };
    let start = Instant::now();
    let now = || start.elapsed().as_secs_f64() * 1e3;
    let report = match compile(builder, loss, &[], &options, &now) {
        Ok(compiled) => compiled.report,
        Err(faults) => return faults.iter().for_each(|it| println!("\n{}", it.message)),
    };
    let held = report.peak().by_content();
    let of = |content| readable_bytes(held[&content]);
    println!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {:.1} |",
        report.strategy(),
        limit.unwrap_or("any"),
        readable_bytes(report.bytes_total),
        match report.search().lower_bound_bytes {
            0 => "-".to_owned(),
            bytes => readable_bytes(bytes),
        },
        readable_bytes(report.peak_memory_bytes_per_gpu),
        of(Content::Parameters),
        of(Content::States),
        of(Content::Activations),
        report.milliseconds() / 1e3,
    );
}
