//! Suggestions: the known name that is nearest to an unknown one.

use soybean_plan::nearest_names;

/// Returns the candidate with the fewest edits, if they are few for its length.
pub(crate) fn nearest<'n>(
    name: &str,
    candidates: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let near = nearest_names(name, candidates);
    near.iter().find(|it| it.n_edits <= 1 + it.name.len() / 4).map(|it| it.name)
}

/// Returns help for an unknown name: the nearest known name, or all of them.
pub(crate) fn help(name: &str, kind: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => format!("the {kind} are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["relu", "leaky_relu", "matmul", "tanh", "he"];
        assert_eq!(nearest("rellu", known), Some("relu"));
        assert_eq!(nearest("mat_mul", known), Some("matmul"));
        assert_eq!(nearest("convolve", known), None);
    }
}
