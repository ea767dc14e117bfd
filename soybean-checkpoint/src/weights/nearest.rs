//! Suggestions for misspelt names.

use soybean_plan::nearest_names;

/// The most names that are compared with another.
const MAX_COMPARED: usize = 10_000;

/// Returns the name with the least edit distance, if at most half of the letters differ.
pub(crate) fn nearest<'a>(name: &str, others: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = nearest_names(name, others.take(MAX_COMPARED)).into_iter().next()?;
    (2 * near.n_edits <= name.len().max(near.name.len())).then_some(near.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_if_it_is_near() {
        let nearest = |name| nearest(name, ["dense.0.w", "dense.1.w", "norm"].into_iter());
        assert_eq!(nearest("dense.1.weight"), Some("dense.1.w"));
        assert_eq!(nearest("nor"), Some("norm"));
        assert_eq!(nearest("x"), None);
    }
}
