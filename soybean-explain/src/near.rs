//! Names that are meant, where one is not known.

use std::collections::BTreeSet;

use soybean_plan::edit_distance;

/// The names that take the fewest edits to reach from one, the nearest first; names that begin with it are as near as any. Of names that
/// are as near, those that come first; each once.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let distance = |it: &str| if it.starts_with(name) { 0 } else { edit_distance(name, it) };
    let mut names: Vec<&str> = names.collect();
    let mut known = BTreeSet::new();
    names.retain(|it| known.insert(*it));
    names.sort_by_key(|it| (distance(it), it.len()));
    names
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
        // Names between equal ones are as near as those.
        assert_eq!(nearest("a", ["b", "c", "b"].into_iter()), ["b", "c"]);
    }
}
