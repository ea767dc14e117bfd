//! Names that are meant, where one is not known.

/// The names that take the fewest edits to reach from one, the nearest first; names that begin with it are as near as any.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let distance = |it: &str| if it.starts_with(name) { 0 } else { edit_distance(name, it) };
    let mut names: Vec<&str> = names.collect();
    names.sort_by_key(|it| (distance(it), it.len()));
    names.dedup();
    names
}

/// The number of insertions, deletions and replacements between two words (Wagner & Fischer 1974).
fn edit_distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, left) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn names_are_sorted_by_the_edits_between_them() {
        let near = |name| nearest(name, ["dense.0.w", "dense.1.w", "logits", "x"].into_iter());
        assert_eq!(near("dense.1.v")[0], "dense.1.w");
        assert_eq!(near("dense")[..2], ["dense.0.w", "dense.1.w"]);
        assert_eq!(near("logit")[0], "logits");
    }
}
