//! Prepares the tokens of an item: names that need not be raw, and brackets that nest too deep.
//!
//! `r#NAME` and `NAME` are one name to rustc. The parser's stack bounds the depth of brackets.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};

/// The largest depth to which brackets nest, and the most prefix operators in a row.
const MAX_DEPTH: usize = 100;

/// An item with prepared tokens.
pub(crate) struct Prepared {
    pub(crate) item: TokenStream,
    /// The error at the first tokens that nest too deep. They are left out of the item.
    pub(crate) error: Option<syn::Error>,
}

impl Prepared {
    pub(crate) fn of(item: TokenStream) -> Self {
        let mut prepared = Self { item: TokenStream::new(), error: None };
        prepared.item = prepared.stream(item, 0);
        prepared
    }

    fn stream(&mut self, stream: TokenStream, depth: usize) -> TokenStream {
        let mut result: Vec<TokenTree> = Vec::new();
        let mut n_prefixes = 0;
        for token in stream {
            let is_prefix = matches!(&token, TokenTree::Punct(it) if "-!*&".contains(it.as_char()));
            n_prefixes = if is_prefix { n_prefixes + 1 } else { 0 };
            match token {
                TokenTree::Group(group) => {
                    let content = match depth < MAX_DEPTH {
                        true => self.stream(group.stream(), depth + 1),
                        false => self.too_deep(&group.clone().into()),
                    };
                    let mut prepared = Group::new(group.delimiter(), content);
                    prepared.set_span(group.span());
                    result.push(prepared.into());
                }
                other if n_prefixes > MAX_DEPTH => {
                    self.too_deep(&other);
                }
                TokenTree::Ident(name) => result.push(without_raw(name).into()),
                other => result.push(other),
            }
        }
        result.into_iter().collect()
    }

    fn too_deep(&mut self, at: &TokenTree) -> TokenStream {
        let message = format!(
            "brackets and prefixes nest at most {MAX_DEPTH} deep in a model\n  help: give parts of it names with `let`"
        );
        self.error.get_or_insert_with(|| syn::Error::new(at.span(), message));
        TokenStream::new()
    }
}

fn without_raw(name: Ident) -> Ident {
    let text = name.to_string();
    let Some(mut plain) = text.strip_prefix("r#").and_then(|it| syn::parse_str::<Ident>(it).ok())
    else {
        return name;
    };
    plain.set_span(name.span());
    plain
}

#[cfg(test)]
mod tests {
    use super::Prepared;

    // Guards: raw names that are equal to others, and items that overflowed the parser's stack.
    #[test]
    fn items_are_prepared() {
        let prepared = Prepared::of("fn f() { r#NAME + r#match + r#MATCH }".parse().unwrap());
        assert_eq!(prepared.item.to_string(), "fn f () { NAME + r#match + MATCH }");
        assert!(prepared.error.is_none());
        for (open, close) in [("(", ")"), ("[", "]"), ("{", "}"), ("-", ""), ("!", ""), ("&", "")] {
            let of = |n: usize| format!("fn f() {{ {}1{} }}", open.repeat(n), close.repeat(n));
            assert!(Prepared::of(of(99).parse().unwrap()).error.is_none(), "{open}");
            assert!(Prepared::of(of(1000).parse().unwrap()).error.is_some(), "{open}");
        }
    }
}
