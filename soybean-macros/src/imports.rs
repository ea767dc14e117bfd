//! Imports of a model with errors: they are used, although the bodies that use them are left out.
//! Without this, rustc would warn of unused imports beside the errors.

use std::collections::BTreeMap;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};

/// Returns items that use each import of a name in `functions`, and cannot fail.
///
/// A `use` of a name counts as its use. The name may be undefined or one of a variable, so the
/// block around the `use` defines it: first as a type, and then as a value.
pub(crate) fn used_in(functions: TokenStream) -> TokenStream {
    let mut names = BTreeMap::new();
    collect(functions, &mut names);
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

/// Collects the names that may be imported: all but members and the ends of paths.
fn collect(stream: TokenStream, names: &mut BTreeMap<String, Ident>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    for (position, token) in tokens.iter().enumerate() {
        let is_after = |text: &str| {
            let before = position.checked_sub(text.len()).map(|it| &tokens[it..position]);
            before.is_some_and(|it| it.iter().map(ToString::to_string).collect::<String>() == text)
        };
        let name = match token {
            TokenTree::Ident(it) => it,
            // Attributes are no uses.
            TokenTree::Group(it) if !is_after("#") => {
                collect(it.stream(), names);
                continue;
            }
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => continue,
        };
        let text = name.to_string();
        let is_member = is_after(".") && !is_after("..") || is_after("::");
        if !is_member && syn::parse_str::<Ident>(&text).is_ok() {
            names.entry(text).or_insert_with(|| in_scope(name));
        }
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
        let body = "#[cfg(a)] for _ in 0..count(x) { if (a) { h.relu(dense(x), nn::f(N), ..K) } }";
        super::collect(body.parse().unwrap(), &mut names);
        let names = names.into_keys().collect::<Vec<_>>();
        assert_eq!(names, ["K", "N", "a", "count", "dense", "h", "nn", "x"]);
    }
}
