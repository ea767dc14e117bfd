//! Source text: the user's tokens on one line, for messages.

use proc_macro2::{Delimiter, LineColumn, TokenStream, TokenTree};
use quote::ToTokens;

/// The longest text that a message quotes, in characters.
const MAX_CHARACTERS: usize = 48;

/// Returns the text of `tokens`, shortened if it is too long to read.
pub(crate) fn source_text(tokens: &(impl ToTokens + ?Sized)) -> String {
    let text = whole_text(tokens);
    if text.chars().count() <= MAX_CHARACTERS {
        return text;
    }
    let start: String = text.chars().take(MAX_CHARACTERS - 2).collect();
    format!("{}..", start.trim_end())
}

/// Returns the text of `tokens`, with one blank for any space between two tokens.
pub(crate) fn whole_text(tokens: &(impl ToTokens + ?Sized)) -> String {
    let mut writer = Writer { text: String::new(), end: None };
    writer.stream(tokens.to_token_stream());
    writer.text
}

/// Returns the start of `tokens`: the file's name and the line.
pub(crate) fn place_text(tokens: &(impl ToTokens + ?Sized)) -> String {
    let place = place(tokens);
    place.rsplit(['/', '\\']).next().unwrap_or_default().to_owned()
}

/// Returns the start of `tokens`: the file as rustc names it, and the line.
pub(crate) fn place(tokens: &(impl ToTokens + ?Sized)) -> String {
    let Some(first) = tokens.to_token_stream().into_iter().next() else { return String::new() };
    format!("{}:{}", first.span().file(), first.span().start().line)
}

/// Returns a place as it is named beside another one: `:25` if it is in the same file.
pub(crate) fn relative_place<'a>(place: &'a str, beside: &str) -> &'a str {
    match (place.rsplit_once(':'), beside.rsplit_once(':')) {
        (Some((file, _)), Some((same, _))) if file == same => &place[file.len()..],
        _ => place,
    }
}

struct Writer {
    text: String,
    /// The end of the last token in the user's file.
    end: Option<LineColumn>,
}

impl Writer {
    fn stream(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::None => ("", ""),
                    };
                    // A group from syn has only its whole span, and not those of its delimiters.
                    let (start, end) = (group.span().start(), group.span().end());
                    self.token(open, start, LineColumn { column: start.column + 1, ..start });
                    self.stream(group.stream());
                    let column = end.column.saturating_sub(1);
                    self.token(close, LineColumn { column, ..end }, end);
                }
                other => {
                    let span = other.span();
                    self.token(&other.to_string(), span.start(), span.end());
                }
            }
        }
    }

    fn token(&mut self, text: &str, start: LineColumn, end: LineColumn) {
        if text.is_empty() {
            return;
        }
        if self.end.is_some_and(|it| it != start) && !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text.push_str(text);
        self.end = Some(end);
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenStream;

    use super::source_text;

    fn check(source: &str, expected: &str) {
        let tokens: TokenStream = source.parse().expect("the test's source has tokens");
        assert_eq!(source_text(&tokens), expected);
        let expression: syn::Expr =
            syn::parse2(tokens).expect("the test's source is an expression");
        assert_eq!(source_text(&expression), expected);
    }

    #[test]
    fn text_is_as_it_was_written() {
        check("(x.matmul(w1) + b1).relu()", "(x.matmul(w1) + b1).relu()");
        check("dense(\n    h,\n    [-1..=4, { 5 }],\n)", "dense( h, [-1..=4, { 5 }], )");
        check(
            "a.matmul(b).matmul(c).matmul(d).matmul(e).matmul(f)",
            "a.matmul(b).matmul(c).matmul(d).matmul(e).matm..",
        );
    }
}
