//! The plan as tables for people.

use std::fmt::Write as _;

use soybean_plan::{Entry, Mode, readable_bytes, separate_weights};

use super::{
    Parallelism, Pass, Prediction, Report, Transfer, readable_seconds,
    rows::{aligned, rows},
};
use crate::{graph::Source, peak::Content, tiling::Objective, value::Value};

/// The most conversions that are listed.
const MAX_TRANSFERS: usize = 8;

/// Returns the tables: inputs and kept tensors with their tilings, the parallelism of each layer,
/// and the largest transfers; then the bytes beside those of the baselines.
pub(super) fn text(report: &Report) -> String {
    let mesh = report.found.tiled.mesh;
    let mut text = format!("{}\n\n", title(report));
    text.push_str(&aligned(&tensors(report)));
    if mesh.n_ranks() > 1 {
        text.push('\n');
        text.push_str(&layers(report));
    }
    text.push_str(&conversions(report));
    text.push_str(&figures(report));
    text
}

/// Returns the title, and then the figures of the plan in a line.
pub(super) fn summary(report: &Report) -> String {
    let mut bytes = format!("  {} per {}", readable_bytes(report.bytes_total), report.unit());
    if let Some(proof) = byte_proof(report) {
        let _ = write!(bytes, ", {proof}");
    }
    let seconds = |it: &Prediction| format!("; {} predicted", readable_seconds(it.seconds));
    let predicted = report.prediction.as_ref().map_or_else(String::new, seconds);
    let memory = readable_bytes(report.peak_memory_bytes_per_gpu);
    format!("{}\n{bytes}{predicted}; {memory} of memory per GPU", title(report))
}

fn title(report: &Report) -> String {
    let mesh = report.found.tiled.mesh;
    let mode = match report.mode() {
        Mode::Training => String::new(),
        Mode::Inference => format!(" in mode {}", report.mode()),
    };
    let n = mesh.n_ranks();
    let plural = if n == 1 { "" } else { "s" };
    let (name, strategy, precision) = (&report.name, report.strategy(), report.precision());
    format!(
        "plan of `{name}`{mode} for {n} GPU{plural}, mesh {mesh}, strategy {strategy}, precision {precision}"
    )
}

/// Returns what is proved of the plan's bytes, if they are the objective.
fn byte_proof(report: &Report) -> Option<String> {
    let gap = report.gap().filter(|_| report.objective() == Objective::Bytes)?;
    let extents = if report.padding.has_further_paddings { " of these extents" } else { "" };
    Some(match gap {
        0.0 => format!("proved optimal among tilings{extents}"),
        _ => format!("within {:.1} % of the best tiling{extents}", gap * 100.0),
    })
}

fn tensors(report: &Report) -> Vec<[String; 4]> {
    let (graph, tiled, names) = (report.graph(), &report.found.tiled, report.names());
    let fetched = tiled.network.fetched();
    let is_shown = |&value: &Value| match graph.node(value).source {
        Source::Input { .. } | Source::Parameter(_) | Source::Buffer(_) => true,
        // They are listed beside their parameters.
        Source::State => false,
        Source::Operator(_) => fetched.contains(&value) || graph.node(value).pinned.is_some(),
    };
    let groups = tiled.network.update_groups();
    let states = |value: Value| {
        let group = groups.iter().find(|it| it[0].0 == value);
        let states = group.iter().flat_map(|it| &it[1..]).map(|it| it.0);
        let sums = tiled.network.gradient_sums.iter().filter(|it| it.parameter == Some(value));
        let states = states.chain(sums.map(|it| it.state));
        let mut tilings: Vec<String> =
            states.map(|it| tiled.tilings[it.index()].to_string()).collect();
        tilings.dedup();
        tilings.join(", ")
    };
    let item = |value: Value| {
        let node = graph.node(value);
        let shape = format!("{}{}", node.dtype, node.shape_with_padding());
        let pinned = if node.pinned.is_some() { " pinned" } else { "" };
        let tiling = format!("{}{pinned}", tiled.tilings[value.index()]);
        (names[&value].clone(), [shape, tiling, states(value)])
    };
    let items = graph.values().filter(is_shown).map(item).collect();
    let has_states = graph.values().any(|it| matches!(graph.node(it).source, Source::State));
    let heading = ["tensor", "shape", "tiling", if has_states { "optimizer states" } else { "" }];
    rows(heading, items, |name, [shape, tiling, states]| {
        [name, shape.clone(), tiling.clone(), states.clone()]
    })
}

fn layers(report: &Report) -> String {
    let called = |name: String| match name.is_empty() {
        true => "(the model itself)".to_owned(),
        false => name,
    };
    let layers = report.parallelism();
    match report.mode() {
        Mode::Training => {
            let heading = ["layer", "forward", "backward", "weights and states"];
            aligned(&rows(heading, layers, |name, it| {
                let Parallelism { forward, backward, weights } = it.clone();
                [called(name), forward, backward, weights]
            }))
        }
        Mode::Inference => aligned(&rows(["layer", "forward", "weights"], layers, |name, it| {
            [called(name), it.forward.clone(), it.weights.clone()]
        })),
    }
}

/// Returns the largest transfers.
fn conversions(report: &Report) -> String {
    let transfers = report.transfers();
    if transfers.is_empty() {
        return String::new();
    }
    let mut rows = vec![["bytes", "share", "tensor", "collective", "for"].map(str::to_owned)];
    for it in transfers.iter().take(MAX_TRANSFERS) {
        let count = match it.n_conversions {
            1 => String::new(),
            n => format!("{n} x "),
        };
        rows.push([
            readable_bytes(it.bytes),
            format!("{:.1} %", it.bytes as f64 * 100.0 / report.bytes_total as f64),
            format!("{count}{} {} -> {}", it.name, it.from, it.to),
            it.collectives.clone(),
            purpose(it),
        ]);
    }
    let rest: u64 = transfers.iter().skip(MAX_TRANSFERS).map(|it| it.bytes).sum();
    if rest > 0 {
        let n: usize = transfers.iter().skip(MAX_TRANSFERS).map(|it| it.n_conversions).sum();
        let share = format!("{:.1} %", rest as f64 * 100.0 / report.bytes_total as f64);
        let others = format!("{n} other conversion{}", if n == 1 { "" } else { "s" });
        rows.push([readable_bytes(rest), share, others, String::new(), String::new()]);
    }
    format!("\n{}", aligned(&rows))
}

/// Returns the purpose of a conversion: `matmul in dense.0, backward, src/main.rs:12`.
fn purpose(transfer: &Transfer) -> String {
    let Transfer { operator, place, layer, pass, .. } = transfer;
    let layer = if layer.is_empty() { String::new() } else { format!(" in {layer}") };
    let place = if place.is_empty() { String::new() } else { format!(", {place}") };
    match pass {
        Pass::Update => format!("update{layer}{place}"),
        Pass::Forward | Pass::Backward => format!("{operator}{layer}, {pass}{place}"),
    }
}

fn figures(report: &Report) -> String {
    let baselines = report.found.baselines;
    let label = match report.accumulate() {
        1 => format!("bytes moved in one {}", report.unit()),
        n => format!("bytes moved in {n} steps"),
    };
    let mut text = format!("\n  {label:<32}  {:>10}", readable_bytes(report.bytes_total));
    if let Some(proof) = byte_proof(report) {
        let _ = write!(text, "  {proof}");
    }
    text.push('\n');
    text.push_str(&bytes_of_steps(report));
    text.push_str(&bytes_of_entries(report));
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
    text.push_str(&feeding(report));
    text.push_str(&work(report));
    text.push_str(&predicted(report));
    let limit = |it| format!("  of {}", readable_bytes(it));
    let limit = report.memory_limit.map_or_else(String::new, limit);
    let memory = readable_bytes(report.peak_memory_bytes_per_gpu);
    let _ = writeln!(text, "  {:<32}  {memory:>10}{limit}", "memory of each GPU");
    let held = report.peak.by_content();
    for (_, name, content) in Content::NAMES.into_iter().filter(|(.., it)| held[it] > 0) {
        let is_of_model = content == Content::States && report.mode() == Mode::Inference;
        let name = if is_of_model { "states" } else { name };
        let _ = writeln!(text, "    {name:<30}  {:>10}", readable_bytes(held[&content]));
    }
    let time = format!("{:.1} ms", report.milliseconds);
    let _ = writeln!(text, "  {:<32}  {time:>10}", "search");
    let graph = report.graph();
    let names = graph.values().filter(|it| graph.is_parameter(*it));
    if let Some(calls) = separate_weights(names.map(|it| &graph.node(it).name[..])) {
        let _ = writeln!(text, "  {:<32}  {calls}", "separate weights in");
    }
    for warning in report.warnings() {
        let _ = writeln!(text, "  warning: {warning}");
    }
    text
}

/// Writes the bytes of both kinds of steps, if several share an update.
fn bytes_of_steps(report: &Report) -> String {
    let n_accumulating = report.accumulate().saturating_sub(1);
    if n_accumulating == 0 {
        return String::new();
    }
    let row = |label: String, bytes| format!("    {label:<30}  {:>10}\n", readable_bytes(bytes));
    let plural = if n_accumulating == 1 { "" } else { "s" };
    let of_each = format!("in {n_accumulating} accumulating step{plural}");
    let of_all = n_accumulating * report.accumulate_bytes;
    row(of_each, of_all) + &row("in the step that updates".to_owned(), report.bytes_total - of_all)
}

/// Writes the bytes of the calls of each entry, if there are several.
fn bytes_of_entries(report: &Report) -> String {
    let call = match report.mode() {
        Mode::Training => "step",
        Mode::Inference => "call",
    };
    let row = |entry: &Entry| {
        let plural = if entry.n_calls == 1 { "" } else { "s" };
        let label = format!("in {} {call}{plural} of `{}`", entry.n_calls, entry.name);
        format!("    {label:<30}  {:>10}\n", readable_bytes(entry.n_calls * entry.bytes_of_call()))
    };
    match report.entries() {
        [_] => String::new(),
        entries => entries.iter().map(row).collect(),
    }
}

/// Writes the bytes of a batch that the host sends to the ranks.
fn feeding(report: &Report) -> String {
    let unit = match report.accumulate() {
        1 => report.unit(),
        _ => report.mode().unit().to_owned(),
    };
    let label = format!("fed to GPUs in one {unit}");
    let (bytes, each) =
        (readable_bytes(report.fed_bytes), readable_bytes(report.fed_bytes_per_gpu));
    let of_update = match report.accumulate() {
        1 => String::new(),
        n => format!(", {} in {n} steps", readable_bytes(n * report.fed_bytes)),
    };
    format!("  {label:<32}  {bytes:>10}  {each} to each GPU{of_update}\n")
}

/// Writes the operations of all ranks over those of one device.
fn work(report: &Report) -> String {
    format!("  {:<32}  {:>10.2}\n", "work over that of one device", report.work)
}

/// Writes the predicted time of a step on the cluster and the load of its levels; if times were
/// compared, also those of the other strategies.
fn predicted(report: &Report) -> String {
    let Some(prediction) = &report.prediction else { return String::new() };
    let mut text = String::new();
    let label = format!("predicted for {}", prediction.cluster);
    let _ = write!(text, "  {label:<32}  {:>10}", readable_seconds(prediction.seconds));
    let proved = match report.gap().filter(|_| report.objective() == Objective::Time) {
        Some(0.0) => ", proved fastest among tilings".to_owned(),
        Some(gap) => format!(", within {:.1} % of the fastest tiling", gap * 100.0),
        None => String::new(),
    };
    let _ = writeln!(
        text,
        "  {} one after another, {} of it communication{proved}",
        readable_seconds(prediction.serial_seconds),
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
