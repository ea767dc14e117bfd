//! The plan as a graph in Graphviz's language: boxes are tensors with their tilings, edges carry the bytes of their conversions.

use std::fmt::Write as _;

use super::{Report, readable_bytes};

/// The text for `dot`.
pub(super) fn dot(report: &Report) -> String {
    let (graph, tiled, names) = (report.graph(), &report.found.tiled, report.names());
    let mut text = format!("digraph {:?} {{\n  node [shape=box];\n", report.name);
    for value in graph.values() {
        let node = graph.node(value);
        let label = format!("{} {}\\n{}", names[&value], node.shape, tiled.tilings[value.index()]);
        let _ = writeln!(text, "  {value} [label=\"{label}\"];");
        if tiled.forms[value.index()].is_none() {
            continue;
        }
        for (operand, conversion) in graph.operands(value).iter().zip(tiled.conversions(value)) {
            let style = match conversion.bytes {
                0 => String::new(),
                bytes => format!(" [label=\"{}\", penwidth=3]", readable_bytes(bytes)),
            };
            let _ = writeln!(text, "  {operand} -> {value}{style};");
        }
    }
    text.push_str("}\n");
    text
}
