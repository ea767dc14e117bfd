//! `#[soybean::layer]` and `#[soybean::constant]`: an item stays as it is, and its tokens become available to models elsewhere.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::{Item, Visibility};

use crate::{
    dependency::{Dependency, dependencies},
    erase::erase_dims,
    expand::Environment,
    item::report_cfg,
    layers::{Bundle, Layers},
    problem::{Message, Problems},
    relay::{self, Stage, State, hand_on, identity},
    unsupported,
};

/// Which attribute it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Layer,
    Constant,
}

/// Expands the attribute.
pub(crate) fn expand(
    kind: Kind,
    attribute: TokenStream,
    tokens: TokenStream,
    environment: &Environment,
) -> TokenStream {
    let item = match syn::parse2::<Item>(tokens.clone()) {
        Ok(item) => item,
        Err(error) => {
            let error = error.to_compile_error();
            return quote!(#error #tokens);
        }
    };
    let mut problems = Problems::default();
    let eager = erase_dims(tokens.clone());
    let Some((name, visibility)) = checked(kind, &attribute, &item, &mut problems) else {
        let errors = problems.to_compile_errors();
        return quote!(#errors #eager);
    };
    if environment.is_editor {
        return eager;
    }
    let errors = problems.to_compile_errors();
    let id = identity(name, &tokens);
    let dependencies = own_dependencies(name, &tokens);
    if !problems.is_empty() {
        let definition = definition(name, visibility, &id, &Bundle::faulty());
        return quote!(#errors #eager #definition);
    }
    if dependencies.is_empty() {
        let bundle = Bundle::tokens(&id, &tokens, &Layers::default());
        let definition = definition(name, visibility, &id, &bundle);
        return quote!(#eager #definition);
    }
    let state = State { stage: Stage::Layer, attribute: quote!(), item: tokens, id };
    let chain = relay::beside_layer(&dependencies, &state);
    quote!(#eager #chain)
}

/// Goes on where the layers that a layer uses have arrived.
pub(crate) fn arrived(arrived: relay::Arrived) -> TokenStream {
    let State { item: tokens, id, .. } = arrived.state;
    let Ok(item) = syn::parse2::<Item>(tokens.clone()) else { return TokenStream::new() };
    let Some((name, visibility)) = name_and_visibility(&item) else { return TokenStream::new() };
    let dependencies = own_dependencies(name, &tokens);
    let layers = Layers::new(&dependencies, arrived.bundles);
    definition(name, visibility, &id, &Bundle::tokens(&id, &tokens, &layers))
}

/// The dependencies of a layer; itself is none.
fn own_dependencies(name: &Ident, tokens: &TokenStream) -> Vec<Dependency> {
    dependencies(tokens, |it| name != it)
}

/// The item's macro, through which models get its bundle.
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

/// The item's name and visibility, if the attribute can stand on it; what is wrong with it goes into `problems`.
fn checked<'a>(
    kind: Kind,
    attribute: &TokenStream,
    item: &'a Item,
    problems: &mut Problems,
) -> Option<(&'a Ident, &'a Visibility)> {
    if !attribute.is_empty() {
        problems.report(attribute, &"this attribute takes no arguments".into());
    }
    let message = match (kind, item) {
        (Kind::Layer, Item::Fn(it)) => {
            if let Some((at, what, instead)) = unsupported::function(it) {
                let headline = format!("{what} is not part of the model language");
                problems.report(at, &Message::new(headline).help(instead));
            }
            report_cfg(it.block.to_token_stream(), problems);
            report_dollar(it.block.to_token_stream(), problems);
            return name_and_visibility(item);
        }
        (Kind::Constant, Item::Const(_)) => return name_and_visibility(item),
        (Kind::Layer, Item::Const(_)) => {
            Message::new("`#[soybean::layer]` stands on a function")
                .help("a const that models and layers use takes `#[soybean::constant]`")
        }
        (Kind::Layer, _) => Message::new("`#[soybean::layer]` stands on a function").help(
            "write a layer as `fn layer(x: Tensor, width: usize) -> Tensor`, with its weights as `param`s",
        ),
        (Kind::Constant, _) => Message::new("`#[soybean::constant]` stands on a const"),
    };
    problems.report(item, &message);
    None
}

fn name_and_visibility(item: &Item) -> Option<(&Ident, &Visibility)> {
    match item {
        Item::Fn(it) => Some((&it.sig.ident, &it.vis)),
        Item::Const(it) => Some((&it.ident, &it.vis)),
        _ => None,
    }
}

/// Reports macros that are defined in a layer: their `$` would be read as the relay's own.
fn report_dollar(tokens: TokenStream, problems: &mut Problems) {
    for token in tokens {
        match &token {
            TokenTree::Punct(it) if it.as_char() == '$' => {
                let message = Message::new("a macro is not part of the model language")
                    .help(unsupported::MACRO);
                problems.report(&token, &message);
                return;
            }
            TokenTree::Group(it) => report_dollar(it.stream(), problems),
            _ => {}
        }
    }
}
