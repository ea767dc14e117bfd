//! An HTML page to explore a plan. It needs no network, and contains the graph, each rank's tiles,
//! the bytes beside the baselines, and the memory step by step.

mod json;
mod memory;
mod tables;
mod tiles;

use soybean_compiler::{Compiled, program_text};
use soybean_plan::Mode;

use crate::picture::{Drawing, escaped, figure, theme};
use json::{list, string};

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
    let figure = figure(name, &Drawing::new(&compiled.report));
    let part = |name: &str| match name {
        "title" => escaped(compiled.report.model()),
        "unit" => compiled.report.mode().unit().to_owned(),
        "style" => format!("{}{STYLE}", theme()),
        "figure" => figure.clone(),
        "data" => data(compiled),
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
fn data(compiled: &Compiled) -> String {
    let text = program_text(&compiled.program);
    let heading = match compiled.report.mode() {
        Mode::Training => "train:",
        Mode::Inference => "evaluate:",
    };
    let lines = text.lines().skip_while(|it| *it != heading).skip(1);
    let steps = lines.take(compiled.program.measured().len()).map(|it| string(it.trim()));
    let data = format!(
        "{{\n\"plan\": {},\n\"ranks\": {},\n\"memory\": {},\n\"layers\": {},\n\"transfers\": {},\n\"steps\": {}\n}}",
        compiled.report.json(),
        tiles::json(&compiled.report.search().tiled),
        memory::json(&compiled.report),
        tables::layers(&compiled.report),
        tables::transfers(&compiled.report),
        list(steps),
    );
    // `</script>` would end the element. Outside of strings JSON has no such character.
    data.replace('<', "\\u003c")
}
