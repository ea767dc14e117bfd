//! The graph as SVG. Forward work leads down, and gradients lead up again beside the tensors that
//! they read.

use std::fmt::Write as _;

use soybean_compiler::readable_bytes;

use super::{
    colour,
    drawing::{Change, Drawing, Edge, Tensor},
    layout::{Layout, Line, layout},
};

/// The height of a tensor's box.
const HEIGHT: f64 = 38.0;
/// The widths of a character in the larger and the smaller line of a box, in the widest of common
/// fonts.
const CHARACTER: [f64; 2] = [8.3, 6.3];
const STYLE: &str = include_str!("picture.css");

/// Returns a complete document.
pub(super) fn document(name: &str, drawing: &Drawing) -> String {
    let figure = figure(name, drawing);
    let (tag, rest) = figure.split_once('\n').expect("the tag has a line of its own");
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{tag}\n<style>\n{STYLE}{}</style>\n{rest}",
        colour::rules()
    )
}

/// Returns the `svg` element, without a style.
pub(crate) fn figure(name: &str, drawing: &Drawing) -> String {
    let widths: Vec<f64> = drawing.tensors.iter().map(width).collect();
    let lines: Vec<Line> = drawing.edges.iter().map(|it| it.line(drawing)).collect();
    let layout = layout(&widths, &lines);
    let most_bytes = drawing.most_bytes();
    let (across, down) = (layout.width, layout.height);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {across:.0} {down:.0}\" width=\"{across:.0}\" height=\"{down:.0}\" role=\"img\">\n\
         <title>plan of {}</title>\n<g class=\"edges\">\n",
        escaped(name)
    );
    // Thick lines are drawn first, so that they hide nothing.
    let mut order: Vec<usize> = (0..drawing.edges.len()).collect();
    order.sort_by_key(|&it| std::cmp::Reverse(drawing.edges[it].change.bytes));
    for at in order {
        text.push_str(&edge(drawing, at, &layout, most_bytes));
    }
    text.push_str("</g>\n<g class=\"tensors\">\n");
    for (at, tensor) in drawing.tensors.iter().enumerate() {
        text.push_str(&box_of(at, tensor, widths[at], layout.centres[at], most_bytes));
    }
    text.push_str("</g>\n</svg>\n");
    text
}

fn width(tensor: &Tensor) -> f64 {
    let length = |text: &str, character: f64| text.chars().count() as f64 * character;
    let lines =
        [length(&first_line(tensor), CHARACTER[0]), length(&second_line(tensor), CHARACTER[1])];
    (lines[0].max(lines[1]) + 14.0).round()
}

/// Returns the lines of a box: the tensor's name, and the operator that computes it.
fn first_line(tensor: &Tensor) -> String {
    let name = short(&tensor.name);
    match (tensor.kind, tensor.operator.split(' ').next()) {
        ("activation" | "gradient" | "output", Some(operator)) => format!("{name} {operator}"),
        _ => name,
    }
}

/// Returns the end of a long path, so that boxes of deep layers are no wider than others.
fn short(name: &str) -> String {
    const LONGEST: usize = 24;
    let mut ends = name.match_indices('.').map(|(at, dot)| &name[at + dot.len()..]);
    let last = name.rsplit_once('.').map(|(_, end)| end);
    match ends.find(|it| it.chars().count() < LONGEST).or(last) {
        Some(end) if name.chars().count() > LONGEST => format!("…{end}"),
        _ => name.to_owned(),
    }
}

fn second_line(tensor: &Tensor) -> String {
    format!("{} {}", tensor.shape, tensor.tiling)
}

impl Edge {
    /// Returns the edge in the direction of the layout. Results of gradients are above their
    /// operands. No forward work depends on a gradient, so there are no cycles.
    fn line(&self, drawing: &Drawing) -> Line {
        let (upper, lower) =
            if self.is_upward(drawing) { (self.to, self.from) } else { (self.from, self.to) };
        Line { upper, lower, source: self.from }
    }

    fn is_upward(&self, drawing: &Drawing) -> bool {
        !drawing.tensors[self.from].is_forward
    }
}

fn edge(drawing: &Drawing, at: usize, layout: &Layout, most_bytes: u64) -> String {
    let edge = &drawing.edges[at];
    let mut route = layout.routes[at].clone();
    let half = if edge.is_upward(drawing) { -HEIGHT / 2.0 } else { HEIGHT / 2.0 };
    if edge.is_upward(drawing) {
        route.reverse();
    }
    let last = route.len() - 1;
    route[0][1] += half;
    route[last][1] -= half;
    let mut path = format!("M{:.1} {:.1}", route[0][0], route[0][1]);
    for pair in route.windows(2) {
        let ([x, y], [to_x, to_y]) = (pair[0], pair[1]);
        let middle = f64::midpoint(y, to_y);
        let _ = match (to_x - x).abs() < 0.5 {
            true => write!(path, "L{to_x:.1} {to_y:.1}"),
            false => write!(path, "C{x:.1} {middle:.1} {to_x:.1} {middle:.1} {to_x:.1} {to_y:.1}"),
        };
    }
    let from = &drawing.tensors[edge.from].name;
    let class = if edge.change.bytes > 0 { "edge moves" } else { "edge" };
    format!(
        "<path class=\"{class}\" data-from=\"{}\" data-to=\"{}\" data-bytes=\"{}\" stroke-width=\"{:.2}\" d=\"{path}\"><title>{}</title></path>\n",
        edge.from,
        edge.to,
        edge.change.bytes,
        edge.change.thickness(most_bytes),
        escaped(&format!("{from} for {}{}", drawing.tensors[edge.to].name, words(&edge.change))),
    )
}

/// Describes a change of tiling, after the description of its tensor or edge.
fn words(change: &Change) -> String {
    match change.tilings {
        None => String::new(),
        Some((from, to)) => format!(": {from} to {to}, {}", readable_bytes(change.bytes)),
    }
}

/// Draws a tensor's box around its centre: stripes, a frame with the thickness of its own change of
/// tiling, and two lines of text.
fn box_of(at: usize, tensor: &Tensor, width: f64, centre: [f64; 2], most_bytes: u64) -> String {
    let (x, y) = (centre[0] - width / 2.0, centre[1] - HEIGHT / 2.0);
    let moves = if tensor.change.bytes > 0 { " moves" } else { "" };
    let mut text = format!(
        "<g class=\"tensor {}{moves}\" data-tensor=\"{at}\" data-bytes=\"{}\" data-layer=\"{}\" data-place=\"{}\" transform=\"translate({x:.1} {y:.1})\"><title>{}</title>",
        tensor.kind,
        tensor.change.bytes,
        escaped(&tensor.layer),
        escaped(&tensor.place),
        escaped(&format!("{} = {}{}", tensor.name, source(tensor), words(&tensor.change))),
    );
    let stripes = colour::stripes(&tensor.tiling);
    let n_axes: usize = stripes.iter().map(|it| it.1).sum();
    let mut before = 0;
    for (colour, n) in stripes {
        let (left, right) = (before * 1000 / n_axes, (before + n) * 1000 / n_axes);
        let (left, right) = (left as f64 * width / 1000.0, right as f64 * width / 1000.0);
        let across = right - left;
        let _ = write!(
            text,
            "<rect class=\"stripe {}\" x=\"{left:.1}\" width=\"{across:.1}\" height=\"{HEIGHT}\"/>",
            colour.class
        );
        before += n;
    }
    let (middle, thickness) = (width / 2.0, tensor.change.thickness(most_bytes));
    let _ = writeln!(
        text,
        "<rect class=\"frame\" width=\"{width}\" height=\"{HEIGHT}\" rx=\"2\" stroke-width=\"{thickness:.2}\"/>\
         <text x=\"{middle:.1}\" y=\"16\">{}</text><text class=\"small\" x=\"{middle:.1}\" y=\"30\">{}</text></g>",
        escaped(&first_line(tensor)),
        escaped(&second_line(tensor)),
    );
    text
}

fn source(tensor: &Tensor) -> &str {
    if tensor.operator.is_empty() { tensor.kind } else { &tensor.operator }
}

/// Escapes a text for XML and HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn long_paths_are_cut_at_a_dot() {
        assert_eq!(short("dense.0.weight"), "dense.0.weight");
        assert_eq!(short("gpt.block.0.attention.linear.1.weight"), "…linear.1.weight");
        assert_eq!(short("a_very_long_name_without_any_path"), "a_very_long_name_without_any_path");
        assert_eq!(
            short("x.a_very_long_name_without_any_path"),
            "…a_very_long_name_without_any_path"
        );
    }
}
