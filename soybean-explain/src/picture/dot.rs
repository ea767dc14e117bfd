//! The graph in Graphviz's language, with striped boxes in a cluster for each layer.

use std::{collections::BTreeMap, fmt::Write as _};

use soybean_plan::{printable, readable_bytes};

use super::{
    color,
    drawing::{Drawing, Edge, Tensor},
};

/// Returns the text for `dot`.
pub(super) fn dot(name: &str, drawing: &Drawing) -> String {
    let most_bytes = drawing.most_bytes();
    let mut text = format!("digraph {} {{\n", quoted(name));
    text.push_str("  node [shape=box, fontname=\"Helvetica\", fontsize=10];\n");
    text.push_str(
        "  edge [color=\"#9aa0a8\", fontname=\"Helvetica\", fontsize=9, arrowsize=0.6];\n",
    );
    let mut by_layer: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, tensor) in drawing.tensors.iter().enumerate() {
        by_layer.entry(&tensor.layer).or_default().push(at);
    }
    for (number, (layer, members)) in by_layer.into_iter().enumerate() {
        let nodes = members.into_iter().map(|it| node(&drawing.tensors[it], most_bytes));
        let nodes: String = nodes.map(|it| format!("    {it};\n")).collect();
        let _ = match layer {
            "" => write!(text, "{nodes}"),
            _ => writeln!(
                text,
                "  subgraph cluster_{number} {{\n    label={}; color=\"#c4c8cd\"; fontname=\"Helvetica\";\n{nodes}  }}",
                quoted(layer)
            ),
        };
    }
    for it in &drawing.edges {
        let _ = writeln!(text, "  {};", edge(it, drawing, most_bytes));
    }
    text.push_str("}\n");
    text
}

/// Returns the node of a tensor. The thickness of its frame shows the bytes that its own change of
/// tiling moves.
fn node(tensor: &Tensor, most_bytes: u64) -> String {
    let mut label = format!("{}\n{}\n{}", tensor.name, tensor.shape, tensor.tiling);
    if tensor.n_equal > 1 {
        let _ = write!(label, "\nx {}", tensor.n_equal);
    }
    if tensor.change.bytes > 0 {
        let _ = write!(label, "\nmade with {}", readable_bytes(tensor.change.bytes));
    }
    let stripes = color::stripes(&tensor.tiling);
    let n_axes: usize = stripes.iter().map(|it| it.1).sum();
    let fills: Vec<String> = stripes
        .iter()
        .map(|(color, n)| format!("{};{:.4}", color.light, *n as f64 / n_axes as f64))
        .collect();
    // Graphviz draws stripes only if there are at least two.
    let (style, fill) = match stripes.as_slice() {
        [(color, _)] => ("filled", color.light.to_owned()),
        _ => ("striped", fills.join(":")),
    };
    let line = match tensor.kind {
        "param" | "state" => ",bold",
        "gradient" => ",dashed",
        _ => "",
    };
    let tooltip = if tensor.operator.is_empty() { tensor.kind } else { &tensor.operator };
    let color = if tensor.change.bytes > 0 { ", color=\"#c2410c\"" } else { "" };
    format!(
        "v{} [label={}, style=\"{style}{line}\", fillcolor=\"{fill}\", penwidth={:.2}{color}, tooltip={}]",
        tensor.id,
        quoted(&label),
        tensor.change.thickness(most_bytes),
        quoted(tooltip),
    )
}

fn edge(edge: &Edge, drawing: &Drawing, most_bytes: u64) -> String {
    let [from, to] = [edge.from, edge.to].map(|it| drawing.tensors[it].id);
    let mut text = format!("v{from} -> v{to}");
    let change = &edge.change;
    if let Some((from, to)) = change.tilings.filter(|_| change.bytes > 0) {
        let label = quoted(&readable_bytes(change.bytes));
        let tooltip = quoted(&format!("{from} to {to}"));
        let thickness = change.thickness(most_bytes);
        let _ = write!(
            text,
            " [label={label}, penwidth={thickness:.2}, color=\"#c2410c\", tooltip={tooltip}]"
        );
    }
    text
}

/// Returns a string in Graphviz's language, which escapes only quotes. Backslashes begin escapes of
/// labels.
fn quoted(text: &str) -> String {
    let line = |it: &str| printable(it).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.split('\n').map(line).collect::<Vec<_>>().join("\\n"))
}
