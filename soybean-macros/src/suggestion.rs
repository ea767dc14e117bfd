//! Suggestions: the known name that is nearest to an unknown one.

use soybean_plan::edit_distance;

/// Returns the candidate with the fewest edits, if they are few for its length.
pub(crate) fn nearest<'n>(
    name: &str,
    candidates: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    candidates
        .into_iter()
        .map(|candidate| (edit_distance(name, candidate), candidate))
        .filter(|(n_edits, candidate)| *n_edits <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
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
