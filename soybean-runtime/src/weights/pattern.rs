//! Names with `*`, which stands for any letters, at least one.

/// A name with `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pieces: Vec<String>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        Self { pieces: text.split('*').map(str::to_owned).collect() }
    }

    /// How many `*` there are.
    pub(super) fn n_stars(&self) -> usize {
        self.pieces.len() - 1
    }

    /// What each `*` stands for in this name; of several ways that in which the first are shortest.
    pub(super) fn captures<'a>(&self, name: &'a str) -> Option<Vec<&'a str>> {
        let (first, rest) = self.pieces.split_first()?;
        let mut captures = Vec::new();
        capture(rest, name.strip_prefix(first.as_str())?, &mut captures).then_some(captures)
    }

    /// Whether this is such a name.
    pub(super) fn is_match(&self, name: &str) -> bool {
        self.captures(name).is_some()
    }

    /// The name in which each `*` is replaced.
    pub(super) fn filled(&self, captures: &[&str]) -> String {
        let with = captures.iter().copied().chain([""]);
        self.pieces.iter().zip(with).flat_map(|(piece, with)| [piece.as_str(), with]).collect()
    }
}

/// Finds what stands before each of the pieces.
fn capture<'a>(pieces: &[String], name: &'a str, captures: &mut Vec<&'a str>) -> bool {
    let Some((piece, rest)) = pieces.split_first() else { return name.is_empty() };
    let ends = name.char_indices().map(|(at, letter)| at + letter.len_utf8());
    for end in ends {
        let (before, after) = name.split_at(end);
        if let Some(after) = after.strip_prefix(piece.as_str()) {
            captures.push(before);
            if capture(rest, after, captures) {
                return true;
            }
            captures.pop();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, name: &str, captures: Option<&[&str]>) {
        assert_eq!(Pattern::new(pattern).captures(name).as_deref(), captures);
    }

    #[test]
    fn stars_stand_for_at_least_one_letter() {
        check("a.w", "a.w", Some(&[]));
        check("a.w", "a.ww", None);
        check("layers.*.w", "layers.12.w", Some(&["12"]));
        check("layers.*.w", "layers..w", None);
        check("*", "a.b", Some(&["a.b"]));
        check("*.*", "a.b.c", Some(&["a", "b.c"]));
        check("*.w", "a.w.w", Some(&["a.w"]));
        check("x*y*", "xäyyz", Some(&["ä", "yz"]));
        assert_eq!(Pattern::new("block.*.*.x").filled(&["3", "q"]), "block.3.q.x");
    }
}
