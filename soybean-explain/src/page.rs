//! An HTML page to explore a plan. It needs no network, and contains the graph, each rank's tiles,
//! the bytes beside the baselines, and the memory step by step. Of layers that repeat, it has the
//! first.

mod json;
mod memory;
mod plan;
mod steps;
mod tables;
mod tiles;

use soybean_compiler::Compiled;
use soybean_plan::xml_text;

use crate::picture::{Drawing, Folded, page_figure, theme};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// The scripts, which are joined in this order.
const SCRIPTS: [&str; 6] = [
    include_str!("page/words.js"),
    include_str!("page/graph.js"),
    include_str!("page/tiles.js"),
    include_str!("page/charts.js"),
    include_str!("page/tables.js"),
    include_str!("page/page.js"),
];

/// Returns the page.
#[must_use]
pub fn html(compiled: &Compiled) -> String {
    let name = compiled.report.model();
    let folded = Folded::new(&Drawing::new(&compiled.report));
    let part = |part: &str| match part {
        "title" => xml_text(name),
        "unit" => compiled.report.unit(),
        "style" => format!("{}{STYLE}", theme()),
        "figure" => page_figure(name, &folded.drawing.without_states()),
        "figure-with-states" => page_figure(name, &folded.drawing),
        "data" => data(compiled, &folded),
        "script" => SCRIPTS.concat(),
        other => unreachable!("the page has no part `{other}`"),
    };
    filled(PAGE, part)
}

/// Replaces each `{{name}}` of a template by the part of that name.
fn filled(template: &str, part: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("the page's own marks are closed");
        text.push_str(before);
        text.push_str(&part(name));
        rest = after;
    }
    text + rest
}

/// Returns the data of the scripts as JSON that is safe in a script element.
fn data(compiled: &Compiled, folded: &Folded) -> String {
    let Compiled { program, report } = compiled;
    let tiled = &report.search().tiled;
    let data = format!(
        "{{\n\"plan\": {},\n\"others\": {},\n\"tensors\": {},\n\"operators\": {},\n\"ranks\": {},\n\"memory\": {},\n\"layers\": {},\n\"transfers\": {},\n\"program\": {}\n}}",
        plan::json(report, folded),
        plan::others(report, folded),
        tiled.forms.len(),
        tiled.forms.iter().flatten().count(),
        tiles::json(tiled),
        memory::json(report),
        tables::layers(report),
        tables::transfers(report, &folded.representatives),
        steps::json(program),
    );
    // `</script>` would end the element. Outside of strings JSON has no such character.
    data.replace('<', "\\u003c")
}
