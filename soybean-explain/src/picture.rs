//! Pictures of a plan's graph: boxes are tensors in the colours of their tilings, edges are as thick as the bytes that are moved along them.

mod colour;
mod dot;
mod drawing;
mod layout;
mod svg;

use soybean_compiler::Report;

pub(crate) use colour::theme;
pub(crate) use drawing::Drawing;
pub(crate) use svg::{escaped, figure};

/// The graph in Graphviz's language.
#[must_use]
pub fn dot(report: &Report) -> String {
    dot::dot(report.model(), &Drawing::new(report))
}

/// The graph as a picture of its own, an SVG document.
#[must_use]
pub fn svg(report: &Report) -> String {
    svg::document(report.model(), &Drawing::new(report))
}
