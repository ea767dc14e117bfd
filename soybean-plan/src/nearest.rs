//! The names nearest to an unknown one, for suggestions.

use std::collections::BTreeSet;

/// A name, and its edit distance from an unknown one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearName<'a> {
    /// The name.
    pub name: &'a str,
    /// The edits that lead from the unknown name to it; 0 if it begins with the unknown name.
    pub n_edits: usize,
}

/// Sorts names by their edit distance from `name`, the nearest first. Among equal distances the
/// shorter name comes first, then the earlier one. Duplicates are dropped.
///
/// ```
/// let near = soybean_plan::nearest_names("rellu", ["tanh", "relu"]);
/// assert_eq!((near[0].name, near[0].n_edits), ("relu", 1));
/// ```
#[must_use]
pub fn nearest_names<'a>(
    name: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Vec<NearName<'a>> {
    let distance = |it: &str| if it.starts_with(name) { 0 } else { edit_distance(name, it) };
    let mut known = BTreeSet::new();
    let mut near: Vec<NearName<'a>> = names
        .into_iter()
        .filter(|it| known.insert(*it))
        .map(|it| NearName { name: it, n_edits: distance(it) })
        .collect();
    near.sort_by_key(|it| (it.n_edits, it.name.len()));
    near
}

/// The most bytes of a name that is compared letter by letter, which takes the square of them.
const MAX_COMPARED: usize = 512;

/// Returns the number of insertions, deletions and replacements of a character between two words;
/// the length of the longer one if it is very long. Source: Wagner & Fischer 1974.
fn edit_distance(from: &str, to: &str) -> usize {
    let longest = from.len().max(to.len());
    if longest > MAX_COMPARED {
        return longest;
    }
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

#[cfg(test)]
mod tests {
    use super::{edit_distance, nearest_names};

    #[test]
    fn edits_are_counted() {
        assert_eq!(edit_distance("rellu", "relu"), 1);
        assert_eq!(edit_distance("", "he"), 2);
    }

    #[test]
    fn names_are_sorted_by_the_edits_between_them() {
        let names = |name, known: &[&'static str]| -> Vec<&str> {
            nearest_names(name, known.iter().copied()).iter().map(|it| it.name).collect()
        };
        let near = |name| names(name, &["dense.0.w", "dense.1.w", "logits", "x"]);
        assert_eq!(near("dense.1.v")[0], "dense.1.w");
        assert_eq!(near("dense")[..2], ["dense.0.w", "dense.1.w"]);
        assert_eq!(near("logit")[0], "logits");
        // A duplicate between equally near names is dropped.
        assert_eq!(names("a", &["b", "c", "b"]), ["b", "c"]);
    }
}
