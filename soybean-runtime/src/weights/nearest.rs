//! Which name was meant: the one that most letters have in common with.

/// The name that is nearest to this one, if it is near at all.
pub(super) fn nearest<'a>(name: &str, others: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, found) = others.map(|it| (distance(name, it), it)).min()?;
    (2 * distance <= name.len().max(found.len())).then_some(found)
}

/// How many letters must be put in, taken out or exchanged to make one of the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (number, letter) in from.chars().enumerate() {
        let mut before = row[0];
        row[0] = number + 1;
        for (column, other) in to.iter().enumerate() {
            let exchanged = before + usize::from(*other != letter);
            before = row[column + 1];
            row[column + 1] = exchanged.min(before + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
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
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
