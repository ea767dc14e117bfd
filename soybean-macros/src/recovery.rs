//! Items with syntax errors: rustc has reported the errors, so the macro emits what keeps the rest
//! of the crate free of others.
//!
//! Most errors are in the bodies of functions. The item is read again with empty bodies, and
//! without the items of its module that still have errors.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::{
    Item, ItemMod, Token, braced,
    parse::{ParseStream, Parser},
};

use crate::{
    attribute::entries_of,
    evaluate::Evaluator,
    item::{Form, Model},
    layers::Layers,
    stub,
};

/// Returns the stubs of a model with a syntax error.
pub(crate) fn model(
    tokens: &TokenStream,
    attribute: &TokenStream,
    error: &syn::Error,
) -> TokenStream {
    let unread = unread_item(tokens, error);
    let Some(form) = form(tokens) else { return unread };
    let model = Model { tokens: tokens.clone(), form, entry_names: entries_of(attribute) };
    let layers = Layers::default();
    let evaluator = Evaluator::new(model.items(), &layers);
    let stubs = stub::for_faults(&model, attribute, &evaluator);
    quote!(#stubs #unread)
}

/// Returns the item of a layer with a syntax error, with an empty body.
pub(crate) fn layer(tokens: &TokenStream) -> Option<Item> {
    syn::parse2(without_bodies(tokens.clone())).ok()
}

fn form(tokens: &TokenStream) -> Option<Form> {
    let tokens = without_bodies(tokens.clone());
    if let Ok(function) = syn::parse2(tokens.clone()) {
        return Some(Form::Function(Box::new(function)));
    }
    module.parse2(tokens).ok().map(|it| Form::Module(Box::new(it)))
}

/// Parses a module without its items that have errors.
fn module(input: ParseStream<'_>) -> syn::Result<ItemMod> {
    let content;
    let (attrs, vis) = (input.call(syn::Attribute::parse_outer)?, input.parse()?);
    let (mod_token, ident) = (input.parse()?, input.parse()?);
    let brace = braced!(content in input);
    let mut items = Vec::new();
    while !content.is_empty() {
        let ahead = content.fork();
        match ahead.parse::<Item>() {
            Ok(_) => items.push(content.parse()?),
            Err(_) => skip_item(&content)?,
        }
    }
    Ok(ItemMod {
        attrs,
        vis,
        unsafety: None,
        mod_token,
        ident,
        content: Some((brace, items)),
        semi: None,
    })
}

/// Skips tokens up to a semicolon or a group in braces.
fn skip_item(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() {
        let is_end = input.peek(Token![;]) || input.peek(syn::token::Brace);
        input.parse::<TokenTree>()?;
        if is_end {
            break;
        }
    }
    Ok(())
}

/// Returns the tokens with empty bodies of functions, but those that consts may call.
fn without_bodies(tokens: TokenStream) -> TokenStream {
    let mut is_in_function = false;
    let mut tokens = tokens.into_iter().peekable();
    let mut result = Vec::new();
    while let Some(token) = tokens.next() {
        let TokenTree::Group(group) = &token else {
            let is_const = matches!(result.last(), Some(TokenTree::Ident(it)) if it == "const");
            is_in_function |= !is_const && matches!(&token, TokenTree::Ident(it) if it == "fn");
            is_in_function &= !matches!(&token, TokenTree::Punct(it) if it.as_char() == ';');
            result.push(token);
            continue;
        };
        if group.delimiter() != Delimiter::Brace {
            result.push(token);
            continue;
        }
        // Braces around a dim are no body.
        let is_dim = matches!(tokens.peek(), Some(TokenTree::Punct(it)) if matches!(it.as_char(), '>' | ','));
        let content = match is_in_function && !is_dim {
            true => TokenStream::new(),
            false => without_bodies(group.stream()),
        };
        is_in_function &= is_dim;
        let mut emptied = Group::new(Delimiter::Brace, content);
        emptied.set_span(group.span());
        result.push(TokenTree::Group(emptied));
    }
    result.into_iter().collect()
}

/// Returns an error of an item that the macro cannot read. It only shows if rustc can read it.
pub(crate) fn unread_item(tokens: &TokenStream, error: &syn::Error) -> TokenStream {
    let span = tokens.clone().into_iter().next().map_or_else(Span::call_site, |it| it.span());
    unread(span, &format!("the macro cannot read this item: {error}"))
}

/// Returns an item with a lint that rustc reports if it reports no errors. Otherwise a program
/// would lack its model in silence where rustc accepts what the macro does not.
pub(crate) fn unread(span: Span, message: &str) -> TokenStream {
    quote_spanned! {span=>
        const _: () = {
            #[must_use = #message]
            const fn model() -> ::core::primitive::bool {
                true
            }
            #[deny(unused_must_use)]
            const fn read() {
                model();
            }
            read()
        };
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    fn check(item: &str, kept: &[&str], dropped: &[&str]) {
        let tokens: proc_macro2::TokenStream = item.parse().unwrap();
        let error = syn::parse2::<syn::Item>(tokens.clone()).err().unwrap();
        let expansion = super::model(&tokens, &super::TokenStream::new(), &error);
        let file: syn::File = syn::parse2(expansion).unwrap();
        let text = file.to_token_stream().to_string();
        assert!(kept.iter().all(|it| text.contains(it)), "{text}");
        assert!(!dropped.iter().any(|it| text.contains(it)), "{text}");
        assert!(!text.contains("compile_error"), "{text}");
    }

    #[test]
    fn syntax_errors_leave_stubs() {
        check(
            "fn model(x: Tensor<f32, { 2 * N }, 6>, y: Tensor<i32, 4>) -> Tensor { let h = x.relu() h.mean(..) }",
            &[
                "fn model (x : Tensor , y : Tensor) -> Tensor",
                "pub y : & 'a [:: core :: primitive :: i32]",
                "type Trainer",
            ],
            &["relu"],
        );
        check(
            "pub mod mlp {
                 use soybean::prelude::*;
                 pub const BATCH: usize = 4;
                 const WIDTH: usize = 4 +;
                 fn dense(x Tensor) -> Tensor { x }
                 pub fn forward(x: Tensor<f32, BATCH>) -> Tensor { let h = ; h }
             }",
            &[
                "prelude",
                "BATCH",
                "fn forward (x : Tensor) -> Tensor",
                "pub x : & 'a [:: core :: primitive :: f32]",
            ],
            &["WIDTH", "dense"],
        );
    }
}
