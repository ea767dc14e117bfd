//! Problems: what is wrong with a model, each at the user's tokens, all of one build together.

use std::{collections::BTreeSet, fmt::Write as _};

use proc_macro2::TokenStream;
use quote::ToTokens;

/// What is told of one fault: what is required and what was found, facts that help to see why, and what to do.
#[derive(Debug, Default)]
pub(crate) struct Message {
    headline: String,
    notes: Vec<(&'static str, String)>,
}

impl Message {
    pub(crate) fn new(headline: impl Into<String>) -> Self {
        Self { headline: headline.into(), notes: Vec::new() }
    }

    /// With one more line, `label: text`.
    pub(crate) fn note(mut self, label: &'static str, text: impl Into<String>) -> Self {
        self.notes.push((label, text.into()));
        self
    }

    /// With a line that says what to do.
    pub(crate) fn help(self, text: impl Into<String>) -> Self {
        self.note("help", text)
    }

    fn text(&self) -> String {
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

impl<T: Into<String>> From<T> for Message {
    fn from(headline: T) -> Self {
        Self::new(headline)
    }
}

/// The faults found so far; one for each stretch of tokens, however often it is evaluated.
#[derive(Default)]
pub(crate) struct Problems {
    errors: Vec<syn::Error>,
    places: BTreeSet<(String, [usize; 4])>,
}

impl Problems {
    /// Reports a fault at `tokens`, unless one was reported there before; at the attribute if there are none.
    pub(crate) fn report(&mut self, tokens: &dyn ToTokens, message: &Message) {
        let tokens = tokens.to_token_stream();
        if self.places.insert(place(&tokens)) {
            self.errors.push(syn::Error::new_spanned(tokens, message.text()));
        }
    }

    /// Takes over errors of the parser.
    pub(crate) fn adopt(&mut self, error: syn::Error) {
        self.errors.push(error);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// One `compile_error!` for each fault.
    pub(crate) fn to_compile_errors(&self) -> TokenStream {
        self.errors.iter().map(syn::Error::to_compile_error).collect()
    }

    /// All messages, for tests.
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

/// Where the tokens begin and end: file, lines and columns.
fn place(tokens: &TokenStream) -> (String, [usize; 4]) {
    let mut spans = tokens.clone().into_iter().map(|token| token.span());
    let Some(first) = spans.next() else { return Default::default() };
    let last = spans.last().unwrap_or(first);
    let (start, end) = (first.start(), last.end());
    (first.file(), [start.line, start.column, end.line, end.column])
}
