//! Text formats of graphical models: WCSP (weighted constraints, as toulbar2 reads it) and UAI
//! (factors of probabilities, as in the UAI inference competitions).

mod functions;
mod uai;
mod wcsp;

use std::{error::Error, fmt, str::FromStr};

use functions::Functions;

/// A reason why a text is not a problem in a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError(String);

impl fmt::Display for FormatError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for FormatError {}

/// The words of a text.
struct Words<'a> {
    words: std::str::SplitAsciiWhitespace<'a>,
    /// The number of words taken.
    n_taken: usize,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        Self { words: text.split_ascii_whitespace(), n_taken: 0 }
    }

    fn word(&mut self, what: &str) -> Result<&'a str, FormatError> {
        let word = self.words.next();
        self.n_taken += 1;
        word.ok_or_else(|| FormatError(format!("the text ends where {what} should be")))
    }

    fn number<T: FromStr>(&mut self, what: &str) -> Result<T, FormatError> {
        let word = self.word(what)?;
        word.parse().map_err(|_| {
            let shown: String = word.chars().take(40).collect();
            FormatError(format!("word {}: {} is no {what}", self.n_taken, shown.escape_debug()))
        })
    }

    /// Checks that no word is left.
    fn end(mut self) -> Result<(), FormatError> {
        match self.words.next() {
            None => Ok(()),
            Some(_) => Err(FormatError(format!("words follow the last one, {}", self.n_taken))),
        }
    }
}
