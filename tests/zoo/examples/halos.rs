//! Plans of few images with and without splits along rows and columns: the table of
//! `docs/planner.md`.
//!
//! `cargo run --release -p soybean-zoo --example halos [-- BATCH:GPUS ..]` compares ResNet-50 with
//! and without halos at some batch sizes and numbers of GPUs.

use std::{
    error::Error,
    io::{self, Write},
    time::Instant,
};

use soybean_compiler::{Options, Report, SearchEffort, SearchRequest, compile, optimizer};
use soybean_plan::Precision;
use soybean_zoo::{Model, resnet50};

/// The cases without arguments: batch size and number of GPUs.
const CASES: [&str; 5] = ["1:8", "2:8", "4:8", "8:8", "8:16"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut output = io::stdout().lock();
    let given: Vec<String> = std::env::args().skip(1).collect();
    let cases = if given.is_empty() { CASES.map(str::to_owned).to_vec() } else { given };
    writeln!(output, "| batch | GPUs | images | plan | bound | optimal | search |")?;
    for case in cases {
        let (batch, n_gpus) = case.split_once(':').ok_or("expected BATCH:GPUS")?;
        let (batch, n_gpus) = (batch.parse()?, n_gpus.parse()?);
        for keeps_images_whole in [true, false] {
            let (report, milliseconds) = planned(batch, n_gpus, keeps_images_whole)?;
            let found = report.search();
            writeln!(
                output,
                "| {batch} | {n_gpus} | {} | {:.1} MB | {:.1} MB | {} | {:.0} ms |",
                if keeps_images_whole { "whole" } else { "split" },
                found.tiled.bytes() as f64 / 1e6,
                found.lower_bound_bytes as f64 / 1e6,
                if found.is_optimal { "yes" } else { "no" },
                milliseconds,
            )?;
            output.flush()?;
        }
    }
    Ok(())
}

/// Compiles the network thoroughly. Returns the report and the time of the search.
fn planned(
    batch: usize,
    n_gpus: usize,
    keeps_images_whole: bool,
) -> Result<(Report, f64), Box<dyn Error>> {
    let options = Options {
        name: "resnet50".to_owned(),
        n_gpus,
        search: SearchRequest {
            effort: SearchEffort::Thorough,
            keeps_images_whole,
            ..SearchRequest::default()
        },
        precision: Precision::F32,
        optimizer: optimizer("sgd", &[]).map_err(|fault| format!("{fault:?}"))?,
    };
    let Model { builder, loss, .. } = resnet50(batch);
    let start = Instant::now();
    let now = || start.elapsed().as_secs_f64() * 1e3;
    let compiled = compile(builder, loss, &[], &options, &now).map_err(|it| format!("{it:?}"))?;
    let milliseconds = compiled.report.milliseconds();
    Ok((compiled.report, milliseconds))
}
