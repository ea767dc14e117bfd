//! Descriptions of tensors for messages: the name, the operator, the line in the source, the layer.

use soybean_compiler::{Pass, Report, Value};

/// Describes a tensor by its name if it has one, and by the user's call for which it was made.
///
/// ```text
/// `h`, the result of `exp` at src/model.rs:12 in `dense.0`
/// a gradient of `log` at src/model.rs:14
/// ```
#[must_use]
pub fn describe_tensor(report: &Report, value: Value) -> String {
    let network = &report.search().tiled.network;
    let name = report.names().remove(&value).filter(|it| *it != value.to_string());
    let pass = report.passes().get(value.index()).copied();
    let call = network.site(value).map(|site| {
        let of = match (pass, site.operator.as_str()) {
            (_, "") => String::new(),
            (Some(Pass::Backward), operator) => format!("a gradient of `{operator}`"),
            (Some(Pass::Update), operator) => format!("an update by `{operator}`"),
            (Some(Pass::Forward) | None, operator) => format!("the result of `{operator}`"),
        };
        let place = some("at ", &site.place, "");
        let layer = some("in `", &site.layer, "`");
        let parts = [of, place, layer].into_iter().filter(|it| !it.is_empty());
        parts.collect::<Vec<_>>().join(" ")
    });
    match (name, call.filter(|it| !it.is_empty())) {
        (Some(name), Some(call)) => format!("`{name}`, {call}"),
        (Some(name), None) => format!("`{name}`"),
        (None, Some(call)) => call,
        (None, None) => value.to_string(),
    }
}

/// Returns a text between others, or nothing if it is empty.
fn some(before: &str, text: &str, after: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{before}{text}{after}") }
}
