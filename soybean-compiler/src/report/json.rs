//! The plan as JSON, the interface described in `docs/plan-json.md`.

use std::fmt::Write as _;

use soybean_plan::{Entry, Halo, MAX_RANK, Placement, Tiling, json_string};

use super::{LevelLoad, Pass, Report};
use crate::{
    graph::Node,
    peak::Content,
    signature::{Partitioning, Signature},
    tiling::Conversion,
    value::Value,
};

/// Returns the JSON text, one line for each tensor and each operator.
pub(super) fn json(report: &Report) -> String {
    let (found, mesh) = (&report.found, report.found.tiled.mesh);
    let baselines = found.baselines;
    let axes: Vec<String> = mesh.sizes().map(|it| it.to_string()).collect();
    let mut text = format!(
        "{{\n\"model\": {}, \"mode\": {}, \"gpus\": {}, \"axes\": [{}], \"strategy\": {}, \"objective\": {}, \"precision\": {},\n",
        json_string(&report.name),
        json_string(report.mode().name()),
        mesh.n_ranks(),
        axes.join(", "),
        json_string(report.strategy()),
        json_string(report.objective().name()),
        json_string(report.precision().name()),
    );
    let _ = writeln!(
        text,
        "\"search\": {{ \"optimal\": {}, \"lower_bound_bytes\": {}, \"milliseconds\": {:.3}, \"tables\": {} }},",
        found.is_optimal, found.lower_bound_bytes, report.milliseconds, found.largest_table,
    );
    let values: Vec<Value> = report.graph().values().collect();
    let tensors: Vec<String> = tensors(report, &values);
    let _ = writeln!(text, "\"tensors\": [\n{}\n],", tensors.join(",\n"));
    let computed = values.iter().filter(|it| found.tiled.forms[it.index()].is_some());
    let operators = operators(report, computed.copied());
    let _ = writeln!(text, "\"ops\": [\n{}\n],", operators.join(",\n"));
    let warnings: Vec<String> = report.warnings().iter().map(|it| json_string(it)).collect();
    let per_axis: Vec<String> = report.bytes_per_axis.iter().map(ToString::to_string).collect();
    let _ = write!(
        text,
        "\"bytes_total\": {}, \"bytes_per_axis\": [{}], \"work\": {:.4}, \"warnings\": [{}], \"peak_memory_bytes_per_gpu\": {}, \"memory\": {},\n\
         \"feeding\": {{ \"step_bytes\": {}, \"step_bytes_per_gpu\": {}, \"bytes_total\": {} }},\n\
         \"baselines\": {{ \"data\": {}, \"model\": {}, \"recursive\": {}{} }}",
        report.bytes_total,
        per_axis.join(", "),
        report.work,
        warnings.join(", "),
        report.peak_memory_bytes_per_gpu,
        memory(report),
        report.fed_bytes,
        report.fed_bytes_per_gpu,
        report.accumulate() * report.fed_bytes,
        baselines.data,
        baselines.model,
        baselines.recursive,
        found.unpinned_bytes.map_or(String::new(), |it| format!(", \"unpinned\": {it}")),
    );
    text.push_str(&accumulation(report));
    text.push_str(&entries(report));
    text.push_str(&predicted(report));
    text.push_str("\n}\n");
    text
}

/// Writes the calls of each entry and the bytes of one of them, if there are several entries.
fn entries(report: &Report) -> String {
    let entry = |it: &Entry| {
        let (name, n_calls, bytes) = (json_string(&it.name), it.n_calls, it.bytes_of_call());
        format!("{{ \"name\": {name}, \"calls\": {n_calls}, \"call_bytes\": {bytes} }}")
    };
    match report.entries() {
        [_] => String::new(),
        entries => {
            let entries: Vec<String> = entries.iter().map(entry).collect();
            format!(",\n\"entries\": [{}]", entries.join(", "))
        }
    }
}

/// Writes the bytes of both kinds of steps, if several share an update.
fn accumulation(report: &Report) -> String {
    let (n_steps, bytes) = (report.accumulate(), report.accumulate_bytes);
    if n_steps == 1 {
        return String::new();
    }
    let of_update = report.bytes_total - (n_steps - 1) * bytes;
    format!(
        ",\n\"accumulation\": {{ \"steps\": {n_steps}, \"accumulating_step_bytes\": {bytes}, \"updating_step_bytes\": {of_update} }}"
    )
}

/// Writes the prediction if the cluster is known: the cluster, the time of a step and the load of
/// each level, then the compared times, if any.
fn predicted(report: &Report) -> String {
    let Some(prediction) = &report.prediction else { return String::new() };
    let level = |it: &LevelLoad| {
        let axes: Vec<String> = it.axes.iter().map(ToString::to_string).collect();
        format!(
            "{{ \"name\": {}, \"axes\": [{}], \"bytes\": {}, \"seconds\": {:e} }}",
            json_string(&it.name),
            axes.join(", "),
            it.bytes,
            it.seconds
        )
    };
    let levels: Vec<String> = prediction.levels.iter().map(level).collect();
    let mut text = format!(
        ",\n\"cluster\": {}, \"seconds\": {:e}, \"serial_seconds\": {:e}, \"communication_seconds\": {:e},\n\"levels\": [{}]",
        json_string(&prediction.cluster),
        prediction.seconds,
        prediction.serial_seconds,
        prediction.communication_seconds,
        levels.join(", "),
    );
    if let Some(times) = report.found.times {
        let _ = write!(
            text,
            ",\n\"times\": {{ \"plan\": {:e}, \"lower_bound\": {:e}, \"data\": {:e}, \"model\": {:e}, \"recursive\": {:e} }}",
            times.plan, times.lower_bound, times.data, times.model, times.recursive
        );
    }
    text
}

/// Writes the contents of each rank's memory at its peak, in bytes.
fn memory(report: &Report) -> String {
    let bytes = report.peak.by_content();
    let member = |(name, _, content)| format!("\"{name}\": {}", bytes[&content]);
    let limit = report.memory_limit.map_or_else(|| "null".to_owned(), |it| it.to_string());
    format!("{{ \"limit\": {limit}, {} }}", Content::NAMES.map(member).join(", "))
}

fn tensors(report: &Report, values: &[Value]) -> Vec<String> {
    let (names, kinds) = (report.names(), report.kinds());
    let tensor = |value: &Value| {
        let node = report.graph().node(*value);
        format!(
            "{{ \"id\": {}, \"name\": {}, \"kind\": \"{}\", \"dtype\": \"{}\", \"shape\": {}, {}\"tiling\": {}, \"pinned\": {} }}",
            value.index(),
            json_string(&names[value]),
            kinds[value],
            node.dtype,
            node.shape,
            unpadded(node),
            tiling(&report.found.tiled.tilings[value.index()]),
            node.pinned.is_some(),
        )
    };
    values.iter().map(tensor).collect()
}

/// Writes the shape without padding of a tensor that has padding.
fn unpadded(node: &Node) -> String {
    match node.unpadded == node.shape {
        true => String::new(),
        false => format!("\"unpadded\": {}, ", node.unpadded),
    }
}

fn operators(report: &Report, computed: impl Iterator<Item = Value>) -> Vec<String> {
    let tiled = &report.found.tiled;
    let (layers, passes, weights) = (report.layers(), report.passes(), tiled.network.weights());
    let text = |value: Value| {
        let conversions = tiled.weighted_conversions(value, &weights);
        let times = match report.accumulate() {
            1 => String::new(),
            _ => format!("\"times\": {}, ", weights.of_value(value)),
        };
        operator(report, value, &conversions, &layers[value.index()], passes[value.index()], &times)
    };
    computed.map(text).collect()
}

fn operator(
    report: &Report,
    value: Value,
    conversions: &[Conversion],
    layer: &str,
    pass: Pass,
    times: &str,
) -> String {
    let (tiled, graph) = (&report.found.tiled, report.graph());
    let operator = graph.operator(value).expect("only computed tensors are listed as operators");
    let (signature, form) = tiled.signature(value);
    let inputs: Vec<String> =
        graph.operands(value).iter().map(|it| it.index().to_string()).collect();
    let conversion = |it: &Conversion| {
        let (from, to) = (tiling(&it.from), tiling(&it.to));
        format!(
            "{{ \"tensor\": {}, \"from\": {from}, \"to\": {to}, {}\"bytes\": {} }}",
            it.value.index(),
            halo(&it.halo),
            it.bytes
        )
    };
    let conversions: Vec<String> =
        conversions.iter().filter(|it| !it.is_identity()).map(conversion).collect();
    let site = report.found.tiled.network.site(value).cloned().unwrap_or_default();
    format!(
        "{{ \"id\": {0}, \"name\": {1}, \"signature\": {2}, \"inputs\": [{3}], \"output\": {0}, \"form\": {4}, \"conversions\": [{5}], \"flops\": {6}, \
         {times}\"pass\": \"{pass}\", \"layer\": {7}, \"call\": {8}, \"source\": {9} }}",
        value.index(),
        json_string(&operator.to_string()),
        json_string(&signature.to_string()),
        inputs.join(", "),
        factors(&signature, form),
        conversions.join(", "),
        graph.flops(value),
        json_string(layer),
        json_string(&site.operator),
        json_string(&site.place),
    )
}

/// Writes the elements before and after a rank's part along each dim with a halo.
fn halo(halo: &Halo) -> String {
    let dims = (0..MAX_RANK).filter(|&dim| halo.is_along(dim));
    let along = |dim: usize| format!("\"{dim}\": [{}, {}]", halo.before[dim], halo.after[dim]);
    match halo.is_none() {
        true => String::new(),
        false => format!("\"halo\": {{ {} }}, ", dims.map(along).collect::<Vec<_>>().join(", ")),
    }
}

fn tiling(tiling: &Tiling) -> String {
    let placements: Vec<String> =
        tiling.placements().iter().map(|it: &Placement| format!("\"{it}\"")).collect();
    format!("[{}]", placements.join(", "))
}

/// Returns a partitioning as a list of factors; `-` where work is repeated.
fn factors(signature: &Signature, form: &Partitioning) -> String {
    let factor = |it: &Option<u8>| format!("\"{}\"", signature.entry(*it));
    format!("[{}]", form.0.iter().map(factor).collect::<Vec<_>>().join(", "))
}
