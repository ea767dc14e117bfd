//! The meaning of integers that a reader numbered itself: classes and tokens.
//!
//! The same number must mean the same in training, in evaluations and in predictions. A dataset
//! returns what its numbers mean ([`Dataset::numbering`](crate::Dataset::numbering)), and a run
//! compares and keeps it.

use std::{path::Path, sync::Arc};

use crate::{Error, Vocabulary};

/// The meaning of the integers of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// Labels: the classes with these names.
    Classes(Classes),
    /// Tokens, by the [fingerprint](crate::Tokenizer::fingerprint) of their tokenizer.
    Tokens(u64),
}

/// The names of classes, in the order of their numbers.
///
/// ```
/// use soybean_data::Classes;
///
/// let classes = Classes::new(["cat", "dog"])?;
/// assert_eq!((classes.number("dog"), classes.name(0)), (Some(1), Some("cat")));
/// # Ok::<(), soybean_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes(Arc<[String]>);

impl Classes {
    /// Numbers these names from 0.
    ///
    /// # Errors
    /// If there is no name, or two are alike.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Error> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|it| it[0] == it[1]) {
            return Err(Error::data(format!(
                "expected each class once, found {:?} twice",
                twice[0]
            )));
        }
        if names.is_empty() {
            return Err(Error::data("expected at least one class, found none"));
        }
        Ok(Self(names.into()))
    }

    /// Reads a file of JSON with an array of strings, which are the names.
    ///
    /// # Errors
    /// If the file cannot be read, has other contents, or two names are alike.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::new(Vocabulary::open(path)?.tokens())
    }

    /// Writes the names to a file, which [`open`](Self::open) reads.
    ///
    /// # Errors
    /// If the file cannot be written, or a name is empty.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        Vocabulary::new(self.0.iter())?.save(path)
    }

    /// Returns the names in the order of their numbers.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Returns the name of a class.
    #[must_use]
    pub fn name(&self, number: usize) -> Option<&str> {
        self.0.get(number).map(String::as_str)
    }

    /// Returns the number of a class.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|it| it == name)
    }
}

impl Numbering {
    /// Says how another numbering differs: `expected class 1 to be "cat", found "dog"`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        match (self, other) {
            (Self::Classes(Classes(these)), Self::Classes(Classes(others))) => {
                let number = (0..these.len().max(others.len()))
                    .find(|number| these.get(*number) != others.get(*number))?;
                Some(match (these.get(number), others.get(number)) {
                    (Some(expected), Some(found)) => {
                        format!("expected class {number} to be {expected:?}, found {found:?}")
                    }
                    (Some(missing), _) => {
                        format!("expected class {number}, {missing:?}, found none")
                    }
                    (None, found) => {
                        let found = found.map_or("", String::as_str);
                        format!("expected {number} classes, found one more, {found:?}")
                    }
                })
            }
            (Self::Tokens(this), Self::Tokens(other)) => (this != other).then(|| {
                format!(
                    "expected tokens of the tokenizer with the fingerprint {this:016x}, found \
                     {other:016x}"
                )
            }),
            (Self::Classes(_), Self::Tokens(_)) => {
                Some("expected labels of classes, found tokens".to_owned())
            }
            (Self::Tokens(_), Self::Classes(_)) => {
                Some("expected tokens, found labels of classes".to_owned())
            }
        }
    }
}
