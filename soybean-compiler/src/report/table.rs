//! The plan as a table for people.

use std::fmt::Write as _;

use super::{Report, readable_bytes, readable_seconds};
use crate::{graph::Source, peak::Content, tiling::Objective};

/// The most tensors that are listed; the others are counted.
const MAX_ROWS: usize = 40;

/// The table: tensors that come from outside or stay, with their tilings; then the bytes beside those of the baselines.
pub(super) fn text(report: &Report) -> String {
    let mesh = report.found.tiled.mesh;
    let mut text = format!(
        "plan of `{}` for {} GPUs, mesh {mesh}, strategy {}, precision {}\n\n",
        report.name,
        mesh.n_ranks(),
        report.strategy(),
        report.precision()
    );
    let rows = rows(report);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    for row in &rows {
        let line = format!(
            "  {:<3$}  {:<4$}  {:<5$}",
            row[0], row[1], row[2], widths[0], widths[1], widths[2]
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push_str(&summary(report));
    text
}

fn rows(report: &Report) -> Vec<[String; 3]> {
    let (graph, tiled, names) = (report.graph(), &report.found.tiled, report.names());
    let network = &tiled.network;
    let fetched = network.fetched();
    let is_shown = |value: crate::graph::Value| match graph.node(value).source {
        Source::Input { .. } | Source::Parameter(_) | Source::Buffer(_) | Source::State => true,
        Source::Operator(_) => fetched.contains(&value) || graph.node(value).pinned.is_some(),
    };
    let shown: Vec<_> = graph.values().filter(|&it| is_shown(it)).collect();
    let row = |&value: &crate::graph::Value| {
        let node = graph.node(value);
        let shape = format!("{}{}", node.dtype, node.shape);
        let tiling = tiled.tilings[value.index()];
        let pinned = if node.pinned.is_some() { " pinned" } else { "" };
        [names[&value].clone(), shape, format!("{tiling}{pinned}")]
    };
    let mut rows = vec![["tensor", "shape", "tiling"].map(str::to_owned)];
    rows.extend(shown.iter().take(MAX_ROWS).map(row));
    if shown.len() > MAX_ROWS {
        rows.push([format!("and {} more", shown.len() - MAX_ROWS), String::new(), String::new()]);
    }
    rows
}

fn summary(report: &Report) -> String {
    let baselines = report.found.baselines;
    let mut text =
        format!("\n  bytes moved in one training step  {:>10}", readable_bytes(report.bytes_total));
    if report.is_optimal() && report.objective() == Objective::Bytes {
        text.push_str("  proved optimal");
    }
    text.push('\n');
    let strategies =
        [("data", baselines.data), ("model", baselines.model), ("recursive", baselines.recursive)];
    let others = strategies.map(|(name, bytes)| (format!("with strategy {name}"), bytes));
    let unpinned = report.found.unpinned_bytes.map(|it| ("without pins".to_owned(), it));
    for (label, bytes) in others.into_iter().chain(unpinned) {
        let ratio = match report.bytes_total {
            0 => String::new(),
            total => format!("  {:.2} x", bytes as f64 / total as f64),
        };
        let _ = writeln!(text, "  {label:<32}  {:>10}{ratio}", readable_bytes(bytes));
    }
    text.push_str(&predicted(report));
    let limit = |it| format!("  of {}", readable_bytes(it));
    let limit = report.memory_limit.map_or_else(String::new, limit);
    let memory = readable_bytes(report.peak_memory_bytes_per_gpu);
    let _ = writeln!(text, "  {:<32}  {memory:>10}{limit}", "memory of each GPU");
    let held = report.peak.by_content();
    for (_, name, content) in Content::NAMES.into_iter().filter(|(.., it)| held[it] > 0) {
        let _ = writeln!(text, "    {name:<30}  {:>10}", readable_bytes(held[&content]));
    }
    let time = format!("{:.1} ms", report.milliseconds);
    let _ = writeln!(text, "  {:<32}  {time:>10}", "search at build time");
    text
}

/// The predicted time of a step on the cluster and the load of its levels; where times were compared, also those of the other strategies.
fn predicted(report: &Report) -> String {
    let Some(prediction) = &report.prediction else { return String::new() };
    let mut text = String::new();
    let label = format!("predicted for {}", prediction.cluster);
    let _ = write!(text, "  {label:<32}  {:>10}", readable_seconds(prediction.seconds));
    let proved =
        if report.is_optimal() && report.found.times.is_some() { ", proved fastest" } else { "" };
    let _ = writeln!(
        text,
        "  {} of it communication{proved}",
        readable_seconds(prediction.communication_seconds)
    );
    if let Some(times) = report.found.times {
        for (name, seconds) in
            [("data", times.data), ("model", times.model), ("recursive", times.recursive)]
        {
            let label = format!("time with strategy {name}");
            let ratio = seconds / times.plan;
            let time = readable_seconds(seconds);
            let _ = writeln!(text, "  {label:<32}  {time:>10}  {ratio:.2} x");
        }
    }
    for level in &prediction.levels {
        let label = format!("between {}", level.name);
        let (bytes, seconds) = (readable_bytes(level.bytes), readable_seconds(level.seconds));
        let _ = writeln!(text, "  {label:<32}  {bytes:>10}  {seconds}");
    }
    text
}
