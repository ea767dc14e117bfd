//! The table: a row for each network.

use std::{error::Error, time::Instant};

use soybean_compiler::{
    Compiled, Objective, Options, Request, compile, optimizer, readable_bytes, readable_seconds,
};
use soybean_plan::{Cluster, Precision};
use soybean_zoo::{Entry, Model};

use crate::axes::slow_bytes;

const HEADS: [&str; 10] = [
    "network",
    "bytes: all",
    "between nodes, least",
    "mean",
    "most",
    "time",
    "time: all",
    "between nodes",
    "time",
    "search, ms",
];

/// The lines above the rows.
pub(crate) fn head() -> Vec<String> {
    vec![format!("| {} |", HEADS.join(" | ")), format!("|{}", " --- |".repeat(HEADS.len()))]
}

/// The row of a network.
pub(crate) fn row(entry: &Entry, cluster: &Cluster) -> Result<String, Box<dyn Error>> {
    let counted = compiled(entry, cluster, Objective::Bytes)?;
    let start = Instant::now();
    let timed = compiled(entry, cluster, Objective::Time)?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    let search = counted.report.search();
    let topology = search.topology.as_ref().ok_or("a topology comes with the cluster")?;
    let slow = slow_bytes(&search.tiled, topology);
    let mean = slow.iter().sum::<u64>() / slow.len() as u64;
    let seconds = |it: &Compiled| it.report.prediction.as_ref().map_or(0.0, |it| it.seconds);
    let slow_of = |it: &Compiled| it.report.prediction.as_ref().map_or(0, |it| it.levels[0].bytes);
    let cells = [
        entry.name.to_owned(),
        readable_bytes(counted.report.bytes_total),
        readable_bytes(slow.iter().copied().min().unwrap_or(0)),
        readable_bytes(mean),
        readable_bytes(slow.iter().copied().max().unwrap_or(0)),
        readable_seconds(seconds(&counted)),
        readable_bytes(timed.report.bytes_total),
        readable_bytes(slow_of(&timed)),
        readable_seconds(seconds(&timed)),
        format!("{milliseconds:.0}"),
    ];
    Ok(format!("| {} |", cells.join(" | ")))
}

fn compiled(
    entry: &Entry,
    cluster: &Cluster,
    objective: Objective,
) -> Result<Compiled, Box<dyn Error>> {
    let Model { builder, loss, .. } = (entry.model)();
    let options = Options {
        name: entry.name.to_owned(),
        n_gpus: cluster.n_gpus(),
        search: Request { cluster: Some(cluster.clone()), objective, ..Request::default() },
        precision: Precision::F32,
        optimizer: optimizer(entry.optimizer, &[]).map_err(|it| it.message)?,
    };
    compile(builder, loss, &[], &options, &|| 0.0).map_err(|it| format!("{it:?}").into())
}

const BEGIN: &str = "<!-- table -->";
const END: &str = "<!-- end of table -->";

/// The text with these lines between its marks.
pub(crate) fn replaced(text: &str, lines: &[String]) -> Result<String, String> {
    let (before, rest) = text.split_once(BEGIN).ok_or(format!("there is no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or(format!("there is no {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", lines.join("\n")))
}
