//! Tables of text in which things that repeat, layer by layer, have one row.

use std::{collections::BTreeMap, fmt::Write as _};

use soybean_plan::printable;

/// The most rows of a table; what is left is counted.
const MAX_ROWS: usize = 40;

/// Rows in columns, each a line. Long cells are shortened, since a width has 16 bits.
#[must_use]
pub fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| printable(cell))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
    }
    text
}

/// Returns a row for each group of similar items, after the heading.
pub fn rows<const N: usize, T: PartialEq>(
    heading: [&str; N],
    items: Vec<(String, T)>,
    row: impl Fn(String, &T) -> [String; N],
) -> Vec<[String; N]> {
    let groups = grouped(items);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for it in &groups {
        *counts.entry(&it.pattern).or_default() += it.names.len();
    }
    let n_hidden: usize = groups.iter().skip(MAX_ROWS).map(|it| it.names.len()).sum();
    let mut rows = vec![heading.map(str::to_owned)];
    for group in groups.iter().take(MAX_ROWS) {
        rows.push(row(group.name(counts[group.pattern.as_str()]), &group.content));
    }
    if n_hidden > 0 {
        let name = format!("and {n_hidden} more");
        rows.push(std::array::from_fn(|at| if at == 0 { name.clone() } else { String::new() }));
    }
    rows
}

/// Returns a path with `*` for its numbers, which repeated layers and tensors have in common:
/// `block.*.dense`.
#[must_use]
pub fn pattern(path: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    let part = |part: &str| if is_number(part) { "*".to_owned() } else { part.to_owned() };
    path.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// Items of equal content whose names share a pattern.
struct Group<T> {
    pattern: String,
    names: Vec<String>,
    content: T,
}

/// Groups items, in the order of the first item of each group.
fn grouped<T: PartialEq>(items: Vec<(String, T)>) -> Vec<Group<T>> {
    let mut groups: Vec<Group<T>> = Vec::new();
    for (name, content) in items {
        let pattern = pattern(&name);
        match groups.iter_mut().find(|it| it.pattern == pattern && it.content == content) {
            Some(group) => group.names.push(name),
            None => groups.push(Group { pattern, names: vec![name], content }),
        }
    }
    groups
}

impl<T> Group<T> {
    /// Returns the name of the group, given the total number of items of its pattern.
    fn name(&self, n_of_pattern: usize) -> String {
        match &self.names[..] {
            [one] => one.clone(),
            [_, ..] if self.names.len() == n_of_pattern => self.pattern.clone(),
            [first, rest @ ..] => format!("{first} and {} more", rest.len()),
            [] => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{aligned, pattern, rows};

    // Guards: a panic for a name of 65,536 characters, and escape sequences in names.
    #[test]
    fn cells_of_any_length_are_aligned() {
        let name = "n".repeat(65_536);
        let text = aligned(&[[name, "1".to_owned()], ["\u{1b}[1m".to_owned(), "2".to_owned()]]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("  nnn") && lines[0].ends_with("nnn  1"), "{}", lines[0]);
        assert!(lines[1].starts_with("  \\u{1b}[1m   ") && lines[1].ends_with("   2"));
        assert_eq!(lines[0].chars().count(), lines[1].chars().count());
    }

    #[test]
    fn numbers_are_what_layers_that_repeat_differ_in() {
        for (path, expected) in [
            ("block.3.dense", "block.*.dense"),
            ("10.0.w", "*.*.w"),
            ("v2.conv3x3", "v2.conv3x3"),
            ("block..w", "block..w"),
            ("", ""),
        ] {
            assert_eq!(pattern(path), expected);
        }
    }

    #[test]
    fn rows_that_are_alike_are_one() {
        let items = ["a.0", "a.1", "b.0", "a.2", "b.1", "", "c.0", "b.2"];
        let content = |it: &str| it == "b.2";
        let items = items.map(|it| (it.to_owned(), content(it))).to_vec();
        let rows = rows(["name"], items, |name, _| [name]).concat();
        assert_eq!(rows, ["name", "a.*", "b.0 and 1 more", "", "c.0", "b.2"]);
    }
}
