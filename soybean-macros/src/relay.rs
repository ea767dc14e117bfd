//! The relay: passes the tokens of layers to the items that use them.
//!
//! A layer defines a macro of its own name, and one `use` imports it together with the function. An
//! item that uses layers expands to a chain of calls of these macros. Each adds its bundle to its
//! input and calls the next. The last is `__continue`, which continues the expansion. rustc
//! resolves the paths where the user wrote them.
//!
//! The chain of a layer is at item level, because it defines the layer's macro. There rustc reports
//! that it "cannot find macro `helper`" for a function that is not marked as a layer. The chain of
//! a model is in nested blocks. The innermost block contains the call, and the block around it
//! imports each name. The outermost block defines a macro for each name that may not be a layer, so
//! that the expansion continues and reports the error. Unlike modules, blocks do not change the
//! meaning of `self` and `super`.

use proc_macro2::{Ident, Literal, Span, TokenStream, TokenTree};
use quote::{format_ident, quote};
use soybean_plan::fingerprint;
use syn::{
    braced, bracketed,
    ext::IdentExt,
    parse::{Parse, ParseStream},
};

use crate::{dependency::Dependency, imports::in_scope, layers::Bundle, root::Manifest};

/// The attribute to which the expansion belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Model,
    Layer,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Layer => "layer",
        }
    }
}

/// The input with which the expansion continues.
pub(crate) struct State {
    pub(crate) stage: Stage,
    pub(crate) attribute: TokenStream,
    pub(crate) item: TokenStream,
    /// The unique id of the item.
    pub(crate) id: String,
}

/// The tokens at the end of the chain.
pub(crate) struct Arrived {
    pub(crate) state: State,
    pub(crate) bundles: Vec<Bundle>,
}

/// Returns the chain for a layer, which calls macros by the paths that the user wrote.
pub(crate) fn beside_layer(dependencies: &[Dependency], state: &State) -> TokenStream {
    let paths: Vec<_> = dependencies.iter().map(|it| it.path.clone()).collect();
    chain(&paths, state)
}

/// Returns the chain for a model, in blocks.
pub(crate) fn beside_model(
    dependencies: &[Dependency],
    state: &State,
    manifest: &Manifest,
) -> TokenStream {
    let layers: Vec<_> =
        (0..dependencies.len()).map(|index| format_ident!("__layer_{index}")).collect();
    let mut aliases = Vec::new();
    let (mut imports, mut bare_imports) = (TokenStream::new(), TokenStream::new());
    let mut bare = Vec::new();
    for (index, dependency) in dependencies.iter().enumerate() {
        let path = match manifest.is_2015 {
            true => path_in_scope(&dependency.path),
            false => dependency.path.clone(),
        };
        let mut alias = alias(index, dependency);
        if manifest.is_2015 {
            alias = in_scope(&alias);
        }
        match dependency.is_bare {
            true => {
                bare_imports.extend(quote!(use #path as #alias;));
                bare.push(path);
            }
            false => imports.extend(quote!(use #path as #alias;)),
        }
        aliases.push(alias);
    }
    let hand_on = hand_on(&TokenStream::new());
    let calls: Vec<_> = layers.iter().map(|it| quote!(#it)).collect();
    let chain = chain(&calls, state);
    // With these types, imports of undefined names succeed, so that the expansion reports them
    // instead of rustc.
    quote! {
        #[doc(hidden)]
        #[allow(non_local_definitions, unused_imports, unused_macros, dead_code, non_camel_case_types)]
        const _: () = {
            mod __unmarked {
                macro_rules! __unmarked { #hand_on }
                #(pub(super) use __unmarked as #layers;)*
            }
            use __unmarked::{#(#layers),*};
            #imports
            #(enum #bare {})*
            const _: () = {
                #bare_imports
                const _: () = {
                    #(use #aliases as #layers;)*
                    const _: () = { #chain };
                };
            };
        };
    }
}

/// Returns the name that the blocks of a model's chain give to a dependency.
pub(crate) fn alias(index: usize, dependency: &Dependency) -> Ident {
    // The span of the path, so that rustc shows it if it does not resolve.
    let last = dependency.path.clone().into_iter().last();
    Ident::new(&format!("__alias_{index}"), last.map_or_else(Span::call_site, |it| it.span()))
}

/// Returns a path that a `use` resolves where it stands, as since edition 2018.
fn path_in_scope(path: &TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = path.clone().into_iter().collect();
    if let Some(TokenTree::Ident(first)) = tokens.first_mut()
        && syn::parse_str::<Ident>(&first.to_string()).is_ok()
    {
        *first = in_scope(first);
    }
    tokens.into_iter().collect()
}

fn chain(macros: &[TokenStream], state: &State) -> TokenStream {
    let (first, rest) = (&macros[0], &macros[1..]);
    let State { stage, attribute, item, id } = state;
    let stage = Ident::new(stage.name(), Span::call_site());
    let id = Literal::string(id);
    quote! {
        #first! { [#({#rest})* {::soybean::__continue}] #stage #id { #attribute } { #item } }
    }
}

/// Returns the rule of a macro that adds `bundle` and calls the next macro.
pub(crate) fn hand_on(bundle: &TokenStream) -> TokenStream {
    quote! {
        ([{ $($next:tt)* } $($rest:tt)*] $($state:tt)*) => { $($next)* ! { [$($rest)*] $($state)* { #bundle } } };
    }
}

impl Parse for Arrived {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let (rest, attribute, item);
        bracketed!(rest in input);
        rest.parse::<syn::parse::Nothing>()?;
        let stage = match input.parse::<Ident>()? {
            it if it == Stage::Model.name() => Stage::Model,
            _ => Stage::Layer,
        };
        let id = input.parse::<syn::LitStr>()?.value();
        braced!(attribute in input);
        braced!(item in input);
        let item: TokenStream = item.parse()?;
        let span = item.clone().into_iter().next().map_or_else(Span::call_site, |it| it.span());
        let state = State { stage, attribute: attribute.parse()?, item, id };
        let mut bundles = Vec::new();
        while !input.is_empty() {
            bundles.push(Bundle::parse(input, span)?);
        }
        Ok(Self { state, bundles })
    }
}

/// Returns a number that is unique among the items of all crates, and equal in builds of equal
/// sources.
pub(crate) fn identity(name: &Ident, item: &TokenStream) -> String {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let parts = [
        variable("CARGO_PKG_NAME"),
        variable("CARGO_PKG_VERSION"),
        variable("CARGO_CRATE_NAME"),
        // Distinguishes the items that one `macro_rules!` writes in several places.
        format!("{:?}", name.span()),
        item.to_string(),
    ];
    let bytes = parts.iter().flat_map(|it| it.bytes().chain([0]));
    format!("{}_{:016x}", name.unraw(), fingerprint(bytes))
}
