//! Pictures of a plan's graph. Boxes are tensors in the colors of their tilings, and the thickness
//! of edges shows the bytes that they move. Of layers that repeat, the first is drawn.

mod color;
mod dot;
mod drawing;
mod fold;
mod layout;
mod repeat;
mod svg;

use soybean_compiler::Report;

pub(crate) use color::theme;
pub(crate) use drawing::Drawing;
pub(crate) use fold::Folded;
pub(crate) use svg::page_figure;

/// Returns the graph in Graphviz's language.
#[must_use]
pub fn dot(report: &Report) -> String {
    dot::dot(report.model(), &Folded::new(&Drawing::new(report)).drawing)
}

/// Returns the graph as an SVG document.
#[must_use]
pub fn svg(report: &Report) -> String {
    svg::document(report.model(), &Folded::new(&Drawing::new(report)).drawing)
}
