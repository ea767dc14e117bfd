//! Tables of text in which things that repeat, layer by layer, have one row.

use std::fmt::Write as _;

/// The most rows of a table; what is left is counted.
const MAX_ROWS: usize = 40;

/// Rows in columns, each a line.
#[must_use]
pub fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
    }
    text
}

/// A row for each group of things that are alike, after the heading.
pub fn rows<const N: usize, T: PartialEq>(
    heading: [&str; N],
    items: Vec<(String, T)>,
    row: impl Fn(String, &T) -> [String; N],
) -> Vec<[String; N]> {
    let n_of = |name: &str| items.iter().filter(|it| pattern(&it.0) == pattern(name)).count();
    let counts: Vec<(String, usize)> =
        items.iter().map(|it| (pattern(&it.0), n_of(&it.0))).collect();
    let groups = grouped(items.into_iter());
    let n_hidden: usize = groups.iter().skip(MAX_ROWS).map(|it| it.0.len()).sum();
    let mut rows = vec![heading.map(str::to_owned)];
    for (names, content) in groups.iter().take(MAX_ROWS) {
        let n_of_pattern = counts.iter().find(|it| it.0 == pattern(&names[0])).map_or(0, |it| it.1);
        rows.push(row(group_name(names, n_of_pattern), content));
    }
    if n_hidden > 0 {
        let name = format!("and {n_hidden} more");
        rows.push(std::array::from_fn(|at| if at == 0 { name.clone() } else { String::new() }));
    }
    rows
}

/// A path with `*` for its numbers, which layers and tensors that repeat have in common: `block.*.dense`.
#[must_use]
pub fn pattern(path: &str) -> String {
    let is_number = |part: &str| part.bytes().all(|it| it.is_ascii_digit());
    let part = |part: &str| if is_number(part) { "*".to_owned() } else { part.to_owned() };
    path.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// Things of equal content with their names, in the order in which the first of each stands.
fn grouped<T: PartialEq>(items: impl Iterator<Item = (String, T)>) -> Vec<(Vec<String>, T)> {
    let mut groups: Vec<(Vec<String>, T)> = Vec::new();
    for (name, content) in items {
        let is_alike =
            |it: &&mut (Vec<String>, T)| it.1 == content && pattern(&it.0[0]) == pattern(&name);
        match groups.iter_mut().find(is_alike) {
            Some((names, _)) => names.push(name),
            None => groups.push((vec![name], content)),
        }
    }
    groups
}

/// What a group of things is called, where there are so many of its pattern altogether.
fn group_name(names: &[String], n_of_pattern: usize) -> String {
    match names {
        [one] => one.clone(),
        [first, ..] if names.len() == n_of_pattern => pattern(first),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        [] => String::new(),
    }
}
