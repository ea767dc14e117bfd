//! Patterns of parameters' names: `*` stands for any characters, also for none.

/// Whether the pattern matches the whole name.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, mut rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(before) else { return false };
    // What stands between two stars is taken as early as it can be; what stands behind the last must be the end.
    while let Some((middle, after)) = rest.split_once('*') {
        let Some((_, behind)) = name.split_once(middle) else { return false };
        (name, rest) = (behind, after);
    }
    name.ends_with(rest)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_match_any_characters() {
        for (pattern, name, expected) in [
            ("dense.0.w", "dense.0.w", true),
            ("dense.0.w", "dense.0.wide", false),
            ("dense.0.w", "a.dense.0.w", false),
            ("*", "", true),
            ("*", "w", true),
            ("*.b", "dense.0.b", true),
            ("*.b", "b", false),
            ("*.b", "dense.b.w", false),
            ("embed*", "embed", true),
            ("embed*", "embedding.0.w", true),
            ("embed*", "an.embedding", false),
            ("block.*.norm.*", "block.3.norm.weight", true),
            ("block.*.norm.*", "block.norm.weight", false),
            ("*.b.*.b", "a.b.b", false),
            ("*.b.*.b", "a.b.c.b", true),
            ("*aab*", "aaab", true),
            ("a*a", "a", false),
            ("**", "w", true),
            ("", "", true),
            ("", "w", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
