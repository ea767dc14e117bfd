//! Fragments of JSON.

/// Returns a list of items that are JSON already.
pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// Returns a string with quotes and escapes.
pub(super) fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
