//! Pictures of a plan's graph. Boxes are tensors in the colours of their tilings, and the thickness
//! of edges shows the bytes that they move.

mod colour;
mod dot;
mod drawing;
mod layout;
mod svg;

use soybean_compiler::Report;

pub(crate) use colour::theme;
pub(crate) use drawing::Drawing;
pub(crate) use svg::{escaped, figure};

/// Returns the graph in Graphviz's language.
#[must_use]
pub fn dot(report: &Report) -> String {
    dot::dot(report.model(), &Drawing::new(report))
}

/// Returns the graph as an SVG document.
#[must_use]
pub fn svg(report: &Report) -> String {
    svg::document(report.model(), &Drawing::new(report))
}
