//! Imports of a model with errors: they are used, although the bodies that use them are left out.
//! Without this, rustc would warn of unused imports beside the errors.
//!
//! A model that uses layers has this before its errors are known. So it must hold in models without
//! errors, too.

use std::collections::BTreeMap;

use proc_macro2::{Ident, Spacing, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};

/// Names that no `use` can have: rustc has both a macro and an attribute `cfg`, and `bench` is
/// unstable.
const UNUSABLE: [&str; 2] = ["bench", "cfg"];

/// Returns items that use each import of a name in `tokens`, and cannot fail.
///
/// A `use` of a name counts as its use. The name may be undefined or one of a variable, so the
/// block around the `use` defines it: first as a type, and then as a value.
pub(crate) fn used_in(tokens: TokenStream) -> TokenStream {
    let mut names = BTreeMap::new();
    collect(tokens, &mut names);
    let aliases: Vec<_> = (0..names.len()).map(|index| format_ident!("__alias_{index}")).collect();
    let names: Vec<_> = names.into_values().collect();
    let uses = quote!(const _: () = { #(use #names as #aliases;)* };);
    quote! {
        #[allow(warnings)]
        const _: () = {
            #(enum #names {})*
            #uses
        };
        #[allow(warnings)]
        const _: () = {
            #(const #names: () = ();)*
            #uses
        };
    }
}

/// Collects the names that may be imported: all but fields, members and the ends of paths.
fn collect(stream: TokenStream, names: &mut BTreeMap<String, Ident>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    for (position, token) in tokens.iter().enumerate() {
        let is_after = |text: &str| {
            let before = position.checked_sub(text.len()).map(|it| &tokens[it..position]);
            before.is_some_and(|it| it.iter().map(ToString::to_string).collect::<String>() == text)
        };
        match token {
            TokenTree::Ident(name) => {
                let is_field = matches!(&tokens[position + 1..], [TokenTree::Punct(it), ..] if it.as_char() == ':' && it.spacing() == Spacing::Alone);
                let is_member = is_after(".") && !is_after("..") || is_after("::");
                if !is_field && !is_member {
                    add(name, names);
                }
            }
            // Attributes are no uses.
            TokenTree::Group(it) if !is_after("#") => collect(it.stream(), names),
            // A message of an assertion names consts: `"{WIDTH}"`.
            TokenTree::Literal(it) => {
                let text = it.to_string();
                let is_end = |it: char| !it.is_alphanumeric() && it != '_';
                let named = text.split('{').skip(1).filter_map(|it| it.split(is_end).next());
                for name in named.filter_map(|it| syn::parse_str::<Ident>(it).ok()) {
                    add(&Ident::new(&name.to_string(), it.span()), names);
                }
            }
            TokenTree::Group(_) | TokenTree::Punct(_) => {}
        }
    }
}

fn add(name: &Ident, names: &mut BTreeMap<String, Ident>) {
    let text = name.to_string();
    if !UNUSABLE.contains(&text.as_str()) && syn::parse_str::<Ident>(&text).is_ok() {
        names.entry(text).or_insert_with(|| in_scope(name));
    }
}

/// Returns the name as one that a `use` looks up where it stands, as since edition 2018.
pub(crate) fn in_scope(name: &Ident) -> Ident {
    let mut name = name.clone();
    name.set_span(name.span().resolved_at(Span::call_site()));
    name
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_collected() {
        let mut names = std::collections::BTreeMap::new();
        let body = r#"#[cfg(b)] for _ in 0..count(x) { if (a) { h.relu(dense(x), nn::f(N), ..K) } }
            let cfg = Window { kernel: 3, ..SAME }; assert!(a, "{{{WIDTH:?} of {}", [x].map(relu));"#;
        super::collect(body.parse().unwrap(), &mut names);
        let names = names.into_keys().collect::<Vec<_>>();
        let expected = "K N SAME WIDTH Window a assert count dense h nn relu x";
        assert_eq!(names.join(" "), expected);
    }
}
