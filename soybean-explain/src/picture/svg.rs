//! The graph as SVG. Forward work leads down, and gradients lead up again beside the tensors that
//! they read.

use std::fmt::Write as _;

use soybean_plan::{readable_bytes, xml_text};

use super::{
    color,
    drawing::{Change, Drawing, Tensor},
    layout::{Layout, Line, layout},
};

/// The height of a tensor's box.
const HEIGHT: f64 = 38.0;
/// The widths of a character in the larger and the smaller line of a box, in the widest of common
/// fonts.
const CHARACTER: [f64; 2] = [8.3, 6.3];
const STYLE: &str = include_str!("picture.css");

/// The place of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A document of its own, whose parts describe themselves.
    Document,
    /// A page that describes the parts from the plan.
    Page,
}

/// Returns a complete document.
pub(super) fn document(name: &str, drawing: &Drawing) -> String {
    let figure = figure(name, drawing, Place::Document);
    let (tag, rest) = figure.split_once('\n').expect("the tag has a line of its own");
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{tag}\n<style>\n{STYLE}{}</style>\n{rest}",
        color::rules()
    )
}

/// Returns the `svg` element for a page, without a style and descriptions.
pub(crate) fn page_figure(name: &str, drawing: &Drawing) -> String {
    figure(name, drawing, Place::Page)
}

fn figure(name: &str, drawing: &Drawing, place: Place) -> String {
    let widths: Vec<f64> = drawing.tensors.iter().map(width).collect();
    let lines: Vec<Line> = drawing.lines().collect();
    let layout = layout(&widths, &lines);
    let most_bytes = drawing.most_bytes();
    let (across, down) = (layout.width, layout.height);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {across:.0} {down:.0}\" width=\"{across:.0}\" height=\"{down:.0}\" role=\"img\">\n\
         <title>plan of {}</title>\n<g class=\"edges\">\n",
        xml_text(name)
    );
    // Thick lines are drawn first, so that they hide nothing.
    let mut order: Vec<usize> = (0..drawing.edges.len()).collect();
    order.sort_by_key(|&it| std::cmp::Reverse(drawing.edges[it].change.bytes));
    for at in order {
        text.push_str(&edge(drawing, at, &layout, most_bytes, place));
    }
    text.push_str("</g>\n<g class=\"tensors\">\n");
    for (at, tensor) in drawing.tensors.iter().enumerate() {
        text.push_str(&box_of(tensor, widths[at], layout.centers[at], most_bytes, place));
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
    let equal = match tensor.n_equal {
        1 => String::new(),
        n_equal => format!(" × {n_equal}"),
    };
    match (tensor.kind, tensor.operator.split(' ').next()) {
        ("activation" | "gradient" | "output", Some(operator)) => {
            format!("{name} {operator}{equal}")
        }
        _ => name + &equal,
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

fn edge(drawing: &Drawing, at: usize, layout: &Layout, most_bytes: u64, place: Place) -> String {
    let edge = &drawing.edges[at];
    let mut route = layout.routes[at].clone();
    let half = if drawing.is_upward(edge) { -HEIGHT / 2.0 } else { HEIGHT / 2.0 };
    if drawing.is_upward(edge) {
        route.reverse();
    }
    let last = route.len() - 1;
    route[0][1] += half;
    route[last][1] -= half;
    let [from, to] = [edge.from, edge.to].map(|it| &drawing.tensors[it]);
    let class = if edge.change.bytes > 0 { "edge moves" } else { "edge" };
    let description = match place {
        Place::Page => String::new(),
        Place::Document => {
            let text = format!("{} for {}{}", from.name, to.name, words(&edge.change));
            format!("<title>{}</title>", xml_text(&text))
        }
    };
    format!(
        "<path class=\"{class}\" data-from=\"{}\" data-to=\"{}\" data-bytes=\"{}\" stroke-width=\"{:.2}\" d=\"{}\">{description}</path>\n",
        from.id,
        to.id,
        edge.change.bytes,
        edge.change.thickness(most_bytes),
        path(&route),
    )
}

/// Returns the path through some points: curves, and straight lines where it leads down.
fn path(route: &[[f64; 2]]) -> String {
    let mut path = format!("M{:.0} {:.0}", route[0][0], route[0][1]);
    let mut pairs = route.windows(2).peekable();
    while let Some(pair) = pairs.next() {
        let ([x, y], [to_x, to_y]) = (pair[0], pair[1]);
        let is_straight = |pair: &[[f64; 2]]| (pair[1][0] - pair[0][0]).abs() < 0.5;
        if !is_straight(pair) {
            let middle = f64::midpoint(y, to_y);
            let _ = write!(path, "C{x:.0} {middle:.0} {to_x:.0} {middle:.0} {to_x:.0} {to_y:.0}");
        } else if !pairs.peek().is_some_and(|it| is_straight(it)) {
            let _ = write!(path, "L{to_x:.0} {to_y:.0}");
        }
    }
    path
}

/// Describes a change of tiling, after the description of its tensor or edge.
fn words(change: &Change) -> String {
    match change.tilings {
        None => String::new(),
        Some((from, to)) => format!(": {from} to {to}, {}", readable_bytes(change.bytes)),
    }
}

/// Draws a tensor's box around its center: stripes, a frame with the thickness of its own change of
/// tiling, and two lines of text.
fn box_of(tensor: &Tensor, width: f64, center: [f64; 2], most_bytes: u64, place: Place) -> String {
    let (x, y) = (center[0] - width / 2.0, center[1] - HEIGHT / 2.0);
    let moves = if tensor.change.bytes > 0 { " moves" } else { "" };
    let mut text = format!(
        "<g class=\"tensor {}{moves}\" data-tensor=\"{}\" transform=\"translate({x:.1} {y:.1})\"",
        tensor.kind, tensor.id,
    );
    match place {
        Place::Page => text.push('>'),
        Place::Document => text.push_str(&description(tensor)),
    }
    let stripes = color::stripes(&tensor.tiling);
    let n_axes: usize = stripes.iter().map(|it| it.1).sum();
    let mut before = 0;
    for (color, n) in stripes {
        let (left, right) = (before * 1000 / n_axes, (before + n) * 1000 / n_axes);
        let (left, right) = (left as f64 * width / 1000.0, right as f64 * width / 1000.0);
        let across = right - left;
        let _ = write!(
            text,
            "<rect class=\"stripe {}\" x=\"{left:.1}\" width=\"{across:.1}\" height=\"{HEIGHT}\"/>",
            color.class
        );
        before += n;
    }
    let (middle, thickness) = (width / 2.0, tensor.change.thickness(most_bytes));
    let _ = writeln!(
        text,
        "<rect class=\"frame\" width=\"{width}\" height=\"{HEIGHT}\" rx=\"2\" stroke-width=\"{thickness:.2}\"/>\
         <text x=\"{middle:.1}\" y=\"16\">{}</text><text class=\"small\" x=\"{middle:.1}\" y=\"30\">{}</text></g>",
        xml_text(&first_line(tensor)),
        xml_text(&second_line(tensor)),
    );
    text
}

/// Returns the rest of a tensor's tag, and its title.
fn description(tensor: &Tensor) -> String {
    format!(
        " data-equal=\"{}\" data-bytes=\"{}\" data-layer=\"{}\" data-place=\"{}\"><title>{}</title>",
        tensor.n_equal,
        tensor.change.bytes,
        xml_text(&tensor.layer),
        xml_text(&tensor.place),
        xml_text(&format!("{} = {}{}", tensor.name, source(tensor), words(&tensor.change))),
    )
}

fn source(tensor: &Tensor) -> &str {
    if tensor.operator.is_empty() { tensor.kind } else { &tensor.operator }
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
