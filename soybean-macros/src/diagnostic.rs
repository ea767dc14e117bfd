//! Diagnostics: the errors of a model, each at the user's tokens. All errors of a build are
//! reported together.

use std::{collections::BTreeSet, fmt::Write as _};

use proc_macro2::TokenStream;
use quote::ToTokens;

/// The text of an error: what is required and what was found, facts that explain it, and help.
#[derive(Debug, Default)]
pub(crate) struct Diagnostic {
    headline: String,
    notes: Vec<(&'static str, String)>,
}

impl Diagnostic {
    pub(crate) fn new(headline: impl Into<String>) -> Self {
        Self { headline: headline.into(), notes: Vec::new() }
    }

    /// Adds a line `label: text`.
    pub(crate) fn note(mut self, label: &'static str, text: impl Into<String>) -> Self {
        self.notes.push((label, text.into()));
        self
    }

    /// Adds a line with help.
    pub(crate) fn help(self, text: impl Into<String>) -> Self {
        self.note("help", text)
    }

    pub(crate) fn text(&self) -> String {
        let width = self.notes.iter().map(|(label, _)| label.len() + 1).max().unwrap_or(0);
        let mut text = self.headline.clone();
        let (help, facts): (Vec<_>, Vec<_>) =
            self.notes.iter().partition(|(label, _)| *label == "help");
        for (label, note) in facts.into_iter().chain(help) {
            let label = format!("{label}:");
            write!(text, "\n  {label:width$} {note}").expect("writing to a string cannot fail");
        }
        text
    }
}

impl<T: Into<String>> From<T> for Diagnostic {
    fn from(headline: T) -> Self {
        Self::new(headline)
    }
}

/// The errors found so far, at most one for each range of tokens, however often it is evaluated.
#[derive(Default)]
pub(crate) struct Diagnostics {
    errors: Vec<syn::Error>,
    places: BTreeSet<(String, [usize; 4])>,
}

impl Diagnostics {
    /// Reports an error at `tokens`, or at the attribute if there are none. Later errors at the
    /// same tokens are dropped.
    pub(crate) fn report(&mut self, tokens: &dyn ToTokens, message: &Diagnostic) {
        let tokens = tokens.to_token_stream();
        if self.places.insert(place(&tokens)) {
            self.errors.push(syn::Error::new_spanned(tokens, message.text()));
        }
    }

    /// Adds errors of the parser.
    pub(crate) fn adopt(&mut self, error: syn::Error) {
        self.errors.push(error);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Returns one `compile_error!` for each error.
    pub(crate) fn to_compile_errors(&self) -> TokenStream {
        self.errors.iter().map(syn::Error::to_compile_error).collect()
    }

    /// Returns all texts, for tests.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        let lines: Vec<_> = self
            .errors
            .iter()
            .map(|error| {
                let (start, end) = (error.span().start(), error.span().end());
                format!("{}:{}-{}: {error}\n", start.line, start.column, end.column)
            })
            .collect();
        lines.concat()
    }
}

/// Returns the position of tokens: the file, and the lines and columns of both ends.
fn place(tokens: &TokenStream) -> (String, [usize; 4]) {
    let mut spans = tokens.clone().into_iter().map(|token| token.span());
    let Some(first) = spans.next() else { return Default::default() };
    let last = spans.last().unwrap_or(first);
    let (start, end) = (first.start(), last.end());
    (first.file(), [start.line, start.column, end.line, end.column])
}
