//! The table, a row for each network.

use std::error::Error;

use soybean_compiler::{
    Compiled, Objective, Options, SearchRequest, compile, optimizer, readable_seconds,
};
use soybean_plan::{Cluster, Precision, readable_bytes};
use soybean_zoo::{Entry, Model};

use crate::axes::slow_bytes;

/// The columns for the plan for bytes: its bytes, those over the slowest level for each order of
/// the axes, and the time of a step. The same for the plan for time, and its proved gap to the
/// optimum.
const HEADS: [&str; 10] = [
    "network",
    "bytes: moved",
    "slow level, least",
    "mean",
    "most",
    "step",
    "time: moved",
    "slow level",
    "step",
    "gap",
];

/// The lines above the rows.
pub(crate) fn head() -> Vec<String> {
    vec![format!("| {} |", HEADS.join(" | ")), format!("|{}", " --- |".repeat(HEADS.len()))]
}

/// Returns the row of a network.
pub(crate) fn row(entry: &Entry, cluster: &Cluster) -> Result<String, Box<dyn Error>> {
    let counted = compiled(entry, cluster, Objective::Bytes)?;
    let timed = compiled(entry, cluster, Objective::Time)?;
    let search = counted.report.search();
    let topology = search.topology.as_ref().ok_or("a topology comes with the cluster")?;
    let slow = slow_bytes(&counted.program, topology);
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
        gap(&timed),
    ];
    Ok(format!("| {} |", cells.join(" | ")))
}

/// Returns the proved gap of the plan's time.
fn gap(timed: &Compiled) -> String {
    match timed.report.search().times {
        Some(_) if timed.report.is_optimal() => "optimal".to_owned(),
        Some(times) => format!("{:.2} %", 100.0 * (times.plan / times.lower_bound - 1.0)),
        None => String::new(),
    }
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
        search: SearchRequest {
            cluster: Some(cluster.clone()),
            objective,
            ..SearchRequest::default()
        },
        precision: Precision::F32,
        optimizer: optimizer(entry.optimizer, &[]).map_err(|it| it.message)?,
    };
    compile(builder, loss, &[], &options, &|| 0.0).map_err(|it| format!("{it:?}").into())
}

const BEGIN: &str = "<!-- table -->";
const END: &str = "<!-- end of table -->";

/// Replaces the lines between the marks.
pub(crate) fn replaced(text: &str, lines: &[String]) -> Result<String, String> {
    let (before, rest) = text.split_once(BEGIN).ok_or(format!("there is no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or(format!("there is no {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", lines.join("\n")))
}
