//! Tables in Markdown.

/// Formats a table with a header; all rows have as many cells as the header.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let head_line = line(head.iter().map(|&it| it.to_owned()).collect());
    let rule = line(vec!["---".to_owned(); head.len()]);
    rows.into_iter().map(line).fold(head_line + &rule, |text, row| text + &row)
}
