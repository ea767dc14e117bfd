//! Imports of a model with errors: they are used, although the bodies that use them are left out.
//! Without this, rustc would warn of unused imports beside the errors.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{format_ident, quote};

use crate::dependency::is_in_capitals;

/// Returns the errors, at a place where all names in `functions` are used. The names may be
/// undefined.
pub(crate) fn used_beside(errors: &TokenStream, functions: TokenStream) -> TokenStream {
    let mut names = BTreeMap::new();
    collect(functions, &mut names);
    if errors.is_empty() || names.is_empty() {
        return errors.clone();
    }
    let aliases: Vec<_> = (0..names.len()).map(|index| format_ident!("__alias_{index}")).collect();
    let values: Vec<_> = (0..names.len()).map(|index| format_ident!("__VALUE_{index}")).collect();
    let names: Vec<_> = names.into_values().collect();
    // The enums let imports of undefined names succeed, and the consts let their uses succeed. An
    // error in a body keeps rustc from asking for the types of generic functions in it.
    quote! {
        #[allow(warnings)]
        const _: () = {
            #(enum #names {})*
            #(const #values: () = ();)*
            const _: () = {
                #(use #names as #aliases;)*
                const _: () = {
                    #(use #aliases as #values;)*
                    #errors
                    #(let _ = #values;)*
                };
            };
        };
    }
}

/// Collects the names of functions and consts, without those in longer paths.
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
        let is_call = matches!(tokens.get(position + 1), Some(TokenTree::Group(it)) if it.delimiter() == Delimiter::Parenthesis);
        let is_prefix =
            matches!(tokens.get(position + 1), Some(TokenTree::Punct(it)) if it.as_char() == ':');
        let is_value = is_call || is_in_capitals(&text) && !is_prefix;
        if is_value && !is_member && syn::parse_str::<Ident>(&text).is_ok() {
            names.entry(text).or_insert_with(|| name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn values_are_collected() {
        let mut names = std::collections::BTreeMap::new();
        let body = "#[cfg(a)] for _ in 0..count(x) { if (a) { h.relu(dense(x), nn::f(N), m::K, T::f()) } }";
        super::collect(body.parse().unwrap(), &mut names);
        assert_eq!(names.into_keys().collect::<Vec<_>>(), ["N", "count", "dense"]);
    }
}
