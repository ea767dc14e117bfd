//! Patterns of names, in which `*` matches any characters.

/// A pattern of names, in which `*` matches any number of characters.
///
/// ```
/// use soybean_plan::Pattern;
///
/// let pattern = Pattern::new("layers.*.*");
/// assert_eq!(pattern.captures("layers.3.norm.b"), Some(vec!["3", "norm.b"]));
/// assert!(!pattern.is_match("layers"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The text before, between and after the `*`.
    pieces: Vec<String>,
}

impl Pattern {
    /// Parses a pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { pieces: text.split('*').map(str::to_owned).collect() }
    }

    /// Returns the number of `*`.
    #[must_use]
    pub const fn n_stars(&self) -> usize {
        self.pieces.len() - 1
    }

    /// Returns the text that each `*` matches in this name. If there are several matches, the first
    /// `*` are as short as possible.
    #[must_use]
    pub fn captures<'a>(&self, name: &'a str) -> Option<Vec<&'a str>> {
        let (first, rest) = self.pieces.split_first()?;
        let mut name = name.strip_prefix(first.as_str())?;
        let Some((last, between)) = rest.split_last() else {
            return name.is_empty().then(Vec::new);
        };
        // Text between two stars is matched as early as possible. Text after the last star must be
        // the end.
        let mut captures = Vec::new();
        for piece in between {
            let (before, behind) = name.split_once(piece.as_str())?;
            captures.push(before);
            name = behind;
        }
        captures.push(name.strip_suffix(last.as_str())?);
        Some(captures)
    }

    /// Returns true if the pattern matches this name.
    #[must_use]
    pub fn is_match(&self, name: &str) -> bool {
        self.captures(name).is_some()
    }

    /// Returns the pattern with each `*` replaced.
    #[must_use]
    pub fn filled(&self, captures: &[&str]) -> String {
        let with = captures.iter().copied().chain([""]);
        self.pieces.iter().zip(with).flat_map(|(piece, with)| [piece.as_str(), with]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn stars_stand_for_any_letters() {
        for (pattern, name, captures) in [
            ("dense.0.w", "dense.0.w", Some(&[][..])),
            ("dense.0.w", "dense.0.wide", None),
            ("dense.0.w", "a.dense.0.w", None),
            ("*", "", Some(&[""])),
            ("*", "a.b", Some(&["a.b"])),
            ("*.b", "dense.0.b", Some(&["dense.0"])),
            ("*.b", "b", None),
            ("*.b", "dense.b.w", None),
            ("*.w", "a.w.w", Some(&["a.w"])),
            ("*.*", "a.b.c", Some(&["a", "b.c"])),
            ("embed*", "embed", Some(&[""])),
            ("embed*", "embedding.0.w", Some(&["ding.0.w"])),
            ("embed*", "an.embedding", None),
            ("layers.*.w", "layers.12.w", Some(&["12"])),
            ("layers.*.w", "layers.w", None),
            ("block.*.norm.*", "block.3.norm.weight", Some(&["3", "weight"])),
            ("block.*.norm.*", "block.norm.weight", None),
            ("*.b.*.b", "a.b.b", None),
            ("*.b.*.b", "a.b.c.b", Some(&["a", "c"])),
            ("*aab*", "aaab", Some(&["a", ""])),
            ("x*y*", "xäyyz", Some(&["ä", "yz"])),
            ("a*a", "a", None),
            ("**", "w", Some(&["", "w"])),
            ("", "", Some(&[])),
            ("", "w", None),
        ] {
            let found = Pattern::new(pattern).captures(name);
            assert_eq!(found.as_deref(), captures, "{pattern} {name}");
        }
    }

    #[test]
    fn stars_are_filled_in_order() {
        assert_eq!(Pattern::new("block.*.*.x").filled(&["3", "q"]), "block.3.q.x");
    }
}
