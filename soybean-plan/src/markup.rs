//! Names and other texts as strings of JSON and as texts of XML, whatever characters they have.

use std::fmt::Write;

use crate::printable;

/// Returns a string of JSON, with quotes and escapes.
///
/// ```
/// assert_eq!(soybean_plan::json_string("a \"b\"\n"), r#""a \"b\"\u000a""#);
/// ```
#[must_use]
pub fn json_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(character);
            }
            control if control < ' ' => {
                let _infallible = write!(quoted, "\\u{:04x}", control as u32);
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a text for XML and HTML, with its lines as messages show them, because XML has no other
/// control characters.
///
/// ```
/// assert_eq!(soybean_plan::xml_text("a < b\u{1b}"), "a &lt; b\\u{1b}");
/// ```
#[must_use]
pub fn xml_text(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(printable).collect();
    let text = lines.join("\n");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
