//! Suggestions for misspelt names.

use soybean_plan::edit_distance;

/// Returns the name with the least edit distance, if at most half of the letters differ.
pub(super) fn nearest<'a>(name: &str, others: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, found) = others.map(|it| (edit_distance(name, it), it)).min()?;
    (2 * distance <= name.len().max(found.len())).then_some(found)
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
