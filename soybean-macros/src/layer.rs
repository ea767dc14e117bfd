//! `#[soybean::layer]` and `#[soybean::constant]`: the item is kept unchanged, and models elsewhere
//! can read its tokens.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::{Item, Visibility};

use crate::{
    dependency::{Dependency, dependencies},
    diagnostic::{Diagnostic, Diagnostics},
    erase::erase_dims,
    evaluate::call::is_function,
    expand::Environment,
    kind::Kind,
    layers::{Bundle, Layers},
    recovery,
    relay::{self, Stage, State, hand_on, identity},
    root, stub, unsupported,
};

/// Expands the attribute `layer` or `constant`.
pub(crate) fn expand(
    kind: Kind,
    attribute: TokenStream,
    tokens: TokenStream,
    environment: &Environment,
) -> TokenStream {
    let item = match syn::parse2::<Item>(tokens.clone()) {
        Ok(item) => item,
        Err(_) if environment.is_editor => return erase_dims(tokens),
        Err(error) => return recovered(kind, &attribute, &tokens, &error),
    };
    let mut diagnostics = Diagnostics::default();
    let eager = erase_dims(tokens.clone());
    let Some((name, visibility)) = checked(kind, &attribute, &item, &mut diagnostics) else {
        let errors = diagnostics.to_compile_errors();
        return quote!(#errors #eager);
    };
    if environment.is_editor {
        return eager;
    }
    let errors = diagnostics.to_compile_errors();
    let id = identity(name, &tokens);
    if !diagnostics.is_empty() {
        let definition = definition(name, visibility, &id, &Bundle::with_errors());
        return quote!(#errors #eager #definition);
    }
    let relayed = relayed(name, visibility, id, tokens, attribute);
    quote!(#eager #relayed)
}

/// Returns the macro of an item that models read as these tokens, or the chain of calls that ends
/// with it.
pub(crate) fn relayed(
    name: &Ident,
    visibility: &Visibility,
    id: String,
    tokens: TokenStream,
    attribute: TokenStream,
) -> TokenStream {
    let dependencies = own_dependencies(name, &tokens);
    if dependencies.is_empty() {
        let bundle = Bundle::tokens(&id, &tokens, &Layers::default());
        return definition(name, visibility, &id, &bundle);
    }
    let state = State { stage: Stage::Layer, attribute, item: tokens, id };
    relay::beside_layer(&dependencies, &state)
}

/// Returns the macro of an item with errors.
pub(crate) fn faulty(name: &Ident, visibility: &Visibility, id: &str) -> TokenStream {
    definition(name, visibility, id, &Bundle::with_errors())
}

/// Returns what stays of a layer with a syntax error: its signature, and a macro that tells models
/// that it has errors.
pub(crate) fn recovered(
    kind: Kind,
    attribute: &TokenStream,
    tokens: &TokenStream,
    error: &syn::Error,
) -> TokenStream {
    let unread = recovery::unread_item(tokens, error);
    let Some(item) = recovery::layer(tokens) else { return unread };
    let mut diagnostics = Diagnostics::default();
    let Some((name, visibility)) = checked(kind, attribute, &item, &mut diagnostics) else {
        return unread;
    };
    let definition = definition(name, visibility, &identity(name, tokens), &Bundle::with_errors());
    let item = match &item {
        Item::Fn(it) => stub::without_body(it),
        other => quote!(#other),
    };
    quote!(#item #definition #unread)
}

/// Continues the expansion once the layers that a layer uses have arrived.
pub(crate) fn arrived(arrived: relay::Arrived) -> TokenStream {
    let State { item: tokens, id, .. } = arrived.state;
    let Ok(item) = syn::parse2::<Item>(tokens.clone()) else { return TokenStream::new() };
    let Some((name, visibility)) = name_and_visibility(&item) else { return TokenStream::new() };
    let dependencies = own_dependencies(name, &tokens);
    let layers = Layers::new(&dependencies, arrived.bundles);
    definition(name, visibility, &id, &Bundle::tokens(&id, &tokens, &layers))
}

/// Returns the dependencies of a layer, without the layer itself and without operators.
fn own_dependencies(name: &Ident, tokens: &TokenStream) -> Vec<Dependency> {
    dependencies(tokens, 0, |it| name != it && !is_function(it))
}

/// Returns the item's macro, which gives models its bundle.
fn definition(
    name: &Ident,
    visibility: &Visibility,
    id: &str,
    bundle: &TokenStream,
) -> TokenStream {
    let macro_name = format_ident!("__soybean_layer_{id}");
    let rule = hand_on(bundle);
    let export = match visibility {
        Visibility::Public(_) => quote!(#[macro_export]),
        Visibility::Restricted(_) | Visibility::Inherited => TokenStream::new(),
    };
    quote! {
        #[doc(hidden)]
        #export
        #[allow(unused_macros)]
        macro_rules! #macro_name { #rule }
        #[doc(hidden)]
        #[allow(unused_imports)]
        #visibility use #macro_name as #name;
    }
}

/// Returns the item's name and visibility, or reports that it cannot have the attribute.
fn checked<'a>(
    kind: Kind,
    attribute: &TokenStream,
    item: &'a Item,
    diagnostics: &mut Diagnostics,
) -> Option<(&'a Ident, &'a Visibility)> {
    let is_crate =
        root::argument(attribute).is_some() && attribute.to_string().starts_with("crate");
    if !attribute.is_empty() && !is_crate {
        let message = "this attribute takes no argument but `crate = path`";
        diagnostics.report(attribute, &message.into());
    }
    let message = match (kind, item) {
        (Kind::Layer, Item::Fn(it)) => {
            if let Some(found) = unsupported::function(it) {
                let headline = format!("{} is not part of the model language", found.kind);
                diagnostics.report(found.tokens, &Diagnostic::new(headline).help(found.instead));
            }
            report_dollar(it.block.to_token_stream(), diagnostics);
            return name_and_visibility(item);
        }
        (Kind::Constant, Item::Const(_)) => return name_and_visibility(item),
        (Kind::Layer, Item::Const(_)) => {
            Diagnostic::new("`#[soybean::layer]` applies to functions")
                .help("a const that models and layers use takes `#[soybean::constant]`")
        }
        (Kind::Layer, _) => Diagnostic::new("`#[soybean::layer]` applies to functions").help(
            "write a layer as `fn layer(x: Tensor, width: usize) -> Tensor`, with its weights as `param`s",
        ),
        (Kind::Constant, Item::Static(_)) => {
            Diagnostic::new("`#[soybean::constant]` applies to consts, and a model cannot read a `static`")
                .help("use `const`")
        }
        (Kind::Constant | Kind::Model | Kind::Operator, _) => Diagnostic::new("`#[soybean::constant]` applies to consts"),
    };
    diagnostics.report(item, &message);
    None
}

fn name_and_visibility(item: &Item) -> Option<(&Ident, &Visibility)> {
    match item {
        Item::Fn(it) => Some((&it.sig.ident, &it.vis)),
        Item::Const(it) => Some((&it.ident, &it.vis)),
        _ => None,
    }
}

/// Reports macros that are defined in a layer, because the relay would read their `$` as its own.
fn report_dollar(tokens: TokenStream, diagnostics: &mut Diagnostics) {
    for token in tokens {
        match &token {
            TokenTree::Punct(it) if it.as_char() == '$' => {
                let message = Diagnostic::new("a macro is not part of the model language")
                    .help(unsupported::MACRO);
                diagnostics.report(&token, &message);
                return;
            }
            TokenTree::Group(it) => report_dollar(it.stream(), diagnostics),
            _ => {}
        }
    }
}
