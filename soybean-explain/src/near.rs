//! Names that are meant, where one is not known.

use soybean_compiler::edit_distance;

/// The names that take the fewest edits to reach from one, the nearest first; names that begin with it are as near as any.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let distance = |it: &str| if it.starts_with(name) { 0 } else { edit_distance(name, it) };
    let mut names: Vec<&str> = names.collect();
    names.sort_by_key(|it| (distance(it), it.len(), *it));
    names.dedup();
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
    }
}
