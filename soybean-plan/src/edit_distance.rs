//! Edit distance, by which suggestions for misspelt names are found.

/// Returns the number of insertions, deletions and replacements of a character that turn one word
/// into another. Source: Wagner & Fischer 1974.
///
/// ```
/// assert_eq!(soybean_plan::edit_distance("rellu", "relu"), 1);
/// assert_eq!(soybean_plan::edit_distance("", "he"), 2);
/// ```
#[must_use]
pub fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, left) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
