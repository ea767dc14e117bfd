//! The mapping from the names of a file to the names of a model.

use std::str::FromStr;

use soybean_plan::Pattern;

use crate::{Error, ErrorKind};

/// A mapping from the names of a file to the names of a model.
///
/// A name that matches no rule maps to itself. All tensors of the file and all parameters of the
/// model must be matched, unless the mapping allows them to be unused or missing.
///
/// A mapping is written as text with one entry on each line, or several separated by `;`. A `*`
/// matches any text, including none, and stands for the same text on both sides:
///
/// - `layers.*.linear1.weight = block.*.dense.w`: the name in the file, then the name in the
///   model; the first rule that matches applies
/// - `h.*.c_fc.weight = block.*.dense.w transposed`: the same for a matrix whose rows and columns
///   are exchanged in the file
/// - `missing head.*`: parameters of the model that may be missing in the file
/// - `unused *.num_batches_tracked`: tensors of the file that the model may leave unused
/// - `# ..`: a comment, up to the end of the line
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    rules: Vec<Rule>,
    missing: Vec<Pattern>,
    unused: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    theirs: Pattern,
    ours: Pattern,
    is_transposed: bool,
}

impl Mapping {
    /// Creates the mapping in which each name maps to itself.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule: names in the file that match `theirs` map to `ours`.
    ///
    /// # Errors
    /// If the number of `*` differs.
    pub fn rule(self, theirs: &str, ours: &str) -> Result<Self, Error> {
        self.with(theirs, ours, false)
    }

    /// Adds a rule for matrices whose rows and columns are exchanged in the file.
    ///
    /// # Errors
    /// As [`Self::rule`].
    pub fn transposed(self, theirs: &str, ours: &str) -> Result<Self, Error> {
        self.with(theirs, ours, true)
    }

    /// Allows parameters of the model that match `ours` to be missing in the file.
    #[must_use]
    pub fn may_be_missing(mut self, ours: &str) -> Self {
        self.missing.push(Pattern::new(ours));
        self
    }

    /// Allows tensors of the file that match `theirs` to be unused.
    #[must_use]
    pub fn may_be_unused(mut self, theirs: &str) -> Self {
        self.unused.push(Pattern::new(theirs));
        self
    }

    fn with(mut self, theirs: &str, ours: &str, is_transposed: bool) -> Result<Self, Error> {
        let rule = Rule { theirs: Pattern::new(theirs), ours: Pattern::new(ours), is_transposed };
        let (expected, found) = (rule.theirs.n_stars(), rule.ours.n_stars());
        if expected != found {
            let message =
                format!("`{theirs} = {ours}`: expected {expected} `*` on the right, found {found}");
            return Err(Error::new(ErrorKind::Parameters, message));
        }
        self.rules.push(rule);
        Ok(self)
    }

    /// Returns the name in the model, and whether rows and columns are exchanged.
    pub(super) fn ours(&self, theirs: &str) -> (String, bool) {
        let found = self.rules.iter().find_map(|rule| {
            let captures = rule.theirs.captures(theirs)?;
            Some((rule.ours.filled(&captures), rule.is_transposed))
        });
        found.unwrap_or_else(|| (theirs.to_owned(), false))
    }

    pub(super) fn is_missing_allowed(&self, ours: &str) -> bool {
        self.missing.iter().any(|it| it.is_match(ours))
    }

    pub(super) fn is_unused_allowed(&self, theirs: &str) -> bool {
        self.unused.iter().any(|it| it.is_match(theirs))
    }
}

impl FromStr for Mapping {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text
            .lines()
            .flat_map(|line| line.split(';').map(str::trim).take_while(|it| !it.starts_with('#')));
        parts.filter(|it| !it.is_empty()).try_fold(Self::new(), |mapping, part| {
            let words: Vec<&str> = part.split_whitespace().collect();
            match words[..] {
                [theirs, "=", ours] => mapping.rule(theirs, ours),
                [theirs, "=", ours, "transposed"] => mapping.transposed(theirs, ours),
                ["missing", ours] => Ok(mapping.may_be_missing(ours)),
                ["unused", theirs] => Ok(mapping.may_be_unused(theirs)),
                _ => Err(Error::new(
                    ErrorKind::Parameters,
                    format!(
                        "expected `theirs = ours`, `theirs = ours transposed`, `missing ours` or \
                         `unused theirs`, found `{part}`"
                    ),
                )),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_rule_applies_and_other_names_stay() {
        let text = "# PyTorch's; all\na.*.w = b.*.v transposed; a.1.w = c; # this; that\n\n  missing head.*\nunused *.n";
        let mapping: Mapping = text.parse().unwrap();
        let by_calls = Mapping::new().transposed("a.*.w", "b.*.v").unwrap();
        let by_calls =
            by_calls.rule("a.1.w", "c").unwrap().may_be_missing("head.*").may_be_unused("*.n");
        assert_eq!(mapping, by_calls);
        assert_eq!(mapping.ours("a.1.w"), ("b.1.v".to_owned(), true));
        assert_eq!(mapping.ours("other"), ("other".to_owned(), false));
        assert!(mapping.is_missing_allowed("head.b") && !mapping.is_missing_allowed("b"));
        assert!(mapping.is_unused_allowed("x.n") && !mapping.is_unused_allowed("x.m"));
    }

    #[test]
    fn text_that_is_not_a_rule_is_refused() {
        let error = |text: &str| text.parse::<Mapping>().unwrap_err().to_string();
        assert_eq!(error("a.* = b"), "`a.* = b`: expected 1 `*` on the right, found 0");
        assert_eq!(
            error("a b"),
            "expected `theirs = ours`, `theirs = ours transposed`, `missing ours` or `unused theirs`, found `a b`"
        );
    }
}
