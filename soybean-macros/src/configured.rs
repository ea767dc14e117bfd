//! Conditions within an item, `#[cfg(..)]` and `cfg!(..)`, which rustc decides before the macro
//! reads the item.
//!
//! rustc removes from the input of a derive what is not configured. So the item first becomes the
//! content of a type that derives its expansion, and a second attribute removes the type.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::{
    braced,
    parse::{ParseStream, Parser},
};

use crate::kind::Kind;

/// The name of the derive's attribute, which has the arguments.
const ARGUMENTS: &str = "__soybean_arguments";

/// Returns whether an item contains conditions.
pub(crate) fn has_conditions(item: &TokenStream) -> bool {
    item.clone().into_iter().any(|token| match token {
        TokenTree::Ident(it) => it == "cfg" || it == "cfg_attr",
        TokenTree::Group(it) => has_conditions(&it.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Returns tokens that call the attribute `kind` again, on the item without its conditions.
pub(crate) fn ask(kind: Kind, attribute: &TokenStream, item: TokenStream) -> TokenStream {
    let (kind, item) = (Ident::new(kind.name(), Span::call_site()), with_statements(item));
    let arguments = Ident::new(ARGUMENTS, Span::call_site());
    quote! {
        #[derive(::soybean::__Configured)]
        #[::soybean::__removed]
        #[#arguments(#kind { #attribute })]
        enum __Configured { Item = { #item 0 } }
    }
}

/// Returns the attribute, its arguments, and the item without conditions.
pub(crate) fn answered(tokens: TokenStream) -> syn::Result<(Kind, TokenStream, TokenStream)> {
    let parse = |input: ParseStream<'_>| {
        let attributes = input.call(syn::Attribute::parse_outer)?;
        let found = attributes.into_iter().find(|it| it.path().is_ident(ARGUMENTS));
        let arguments = found.ok_or_else(|| input.error("expected the arguments"))?;
        let (kind, attribute) = arguments.parse_args_with(|input: ParseStream<'_>| {
            let content;
            let kind = input.parse::<Ident>()?;
            braced!(content in input);
            let known = Kind::named(&kind.to_string());
            let known = known.ok_or_else(|| syn::Error::new(kind.span(), "no attribute"))?;
            Ok((known, content.parse::<TokenStream>()?))
        })?;
        let (body, item);
        input.parse::<syn::Token![enum]>()?;
        input.parse::<Ident>()?;
        braced!(body in input);
        body.parse::<Ident>()?;
        body.parse::<syn::Token![=]>()?;
        braced!(item in body);
        let mut item: Vec<TokenTree> = item.parse::<TokenStream>()?.into_iter().collect();
        item.pop();
        Ok((kind, attribute, without_rests(item.into_iter().collect())))
    };
    parse.parse2(tokens)
}

/// Replaces `cfg!(..)` by statements with that condition.
fn with_statements(item: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = Vec::new();
    for token in item {
        match (&tokens[..], token) {
            ([.., TokenTree::Ident(name), TokenTree::Punct(mark)], TokenTree::Group(it))
                if name == "cfg" && mark.as_char() == '!' =>
            {
                let (condition, span) = (it.stream(), name.span());
                let [yes, no] = ["true", "false"].map(|it| Ident::new(it, span));
                tokens.truncate(tokens.len() - 2);
                tokens.extend(
                    quote!({ #[cfg(#condition)] { #yes } #[cfg(not(#condition))] { #no } }),
                );
            }
            (_, TokenTree::Group(it)) => {
                tokens.push(regrouped(&it, with_statements(it.stream())));
            }
            (_, other) => tokens.push(other),
        }
    }
    tokens.into_iter().collect()
}

/// Removes the separators after what was removed, and the conditions that hold.
fn without_rests(item: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = Vec::new();
    for token in item {
        let is = |token: Option<&TokenTree>, character: char| matches!(token, Some(TokenTree::Punct(it)) if it.as_char() == character);
        match token {
            TokenTree::Punct(it) if matches!(it.as_char(), ',' | ';') => {
                let character = it.as_char();
                if !tokens.is_empty() && !is(tokens.last(), character) {
                    tokens.push(it.into());
                }
            }
            TokenTree::Group(it) if is_condition(&it) && is(tokens.last(), '#') => {
                tokens.pop();
            }
            TokenTree::Group(it) => tokens.push(regrouped(&it, without_rests(it.stream()))),
            other => tokens.push(other),
        }
    }
    tokens.into_iter().collect()
}

fn is_condition(group: &Group) -> bool {
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket
        && matches!(first, Some(TokenTree::Ident(it)) if it == "cfg")
}

fn regrouped(group: &Group, stream: TokenStream) -> TokenTree {
    let mut result = Group::new(group.delimiter(), stream);
    result.set_span(group.span());
    result.into()
}
