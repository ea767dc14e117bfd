//! The relay: how the tokens of layers reach the items that use them.
//!
//! A layer defines a macro of its own name, which one `use` imports together with the function. An item that uses layers expands to a chain
//! of calls of these macros: each adds its bundle to what it was given and calls the next, and the last link is `__continue`, where
//! the expansion goes on. Paths are resolved by rustc, where they are written.
//!
//! Beside a layer, the chain must stand where its macro is to be defined, and rustc says that it "cannot find macro `helper`" if a function is not
//! marked as a layer. A model's chain stands in blocks: the innermost holds the call, the one around it imports each name, and the
//! one around that offers a macro for each name that turns out not to be a layer, so that the expansion goes on to say what is wrong. Blocks, unlike
//! modules, leave the meaning of `self` and `super` alone.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use syn::{
    braced, bracketed,
    parse::{Parse, ParseStream},
};

use crate::{dependency::Dependency, layers::Bundle};

/// Which attribute the expansion belongs to.
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

/// What the expansion goes on with.
pub(crate) struct State {
    pub(crate) stage: Stage,
    pub(crate) attribute: TokenStream,
    pub(crate) item: TokenStream,
    /// What tells the item from all others.
    pub(crate) id: String,
}

/// What arrives at the end of the chain.
pub(crate) struct Arrived {
    pub(crate) state: State,
    pub(crate) bundles: Vec<Bundle>,
}

/// The chain for a layer: calls by the paths that the user wrote.
pub(crate) fn beside_layer(dependencies: &[Dependency], state: &State) -> TokenStream {
    let paths: Vec<_> = dependencies.iter().map(|it| it.path.clone()).collect();
    chain(&paths, state)
}

/// The chain for a model, in blocks.
pub(crate) fn beside_model(dependencies: &[Dependency], state: &State) -> TokenStream {
    let layers: Vec<_> =
        (0..dependencies.len()).map(|index| format_ident!("__layer_{index}")).collect();
    let mut aliases = Vec::new();
    let (mut imports, mut bare_imports) = (TokenStream::new(), TokenStream::new());
    let mut bare = Vec::new();
    for (index, dependency) in dependencies.iter().enumerate() {
        let path = &dependency.path;
        // Where the path is, so that rustc shows it if it leads nowhere.
        let span = path.clone().into_iter().last().map_or_else(Span::call_site, |it| it.span());
        let alias = Ident::new(&format!("__alias_{index}"), span);
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
    // The types let the imports of names succeed that nothing defines, so that not rustc but the expansion reports them.
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

fn chain(macros: &[TokenStream], state: &State) -> TokenStream {
    let (first, rest) = (&macros[0], &macros[1..]);
    let State { stage, attribute, item, id } = state;
    let stage = Ident::new(stage.name(), Span::call_site());
    let id = Literal::string(id);
    quote! {
        #first! { [#({#rest})* {::soybean::__continue}] #stage #id { #attribute } { #item } }
    }
}

/// The rule of a macro that adds `bundle` and calls the next.
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

/// A number for an item that no other item of any crate has, equal in every build of equal sources.
pub(crate) fn identity(name: &Ident, item: &TokenStream) -> String {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let parts = [
        variable("CARGO_PKG_NAME"),
        variable("CARGO_PKG_VERSION"),
        variable("CARGO_CRATE_NAME"),
        // It tells apart the items that one `macro_rules!` writes in several places.
        format!("{:?}", name.span()),
        item.to_string(),
    ];
    let bytes = parts.iter().flat_map(|it| it.bytes().chain([0]));
    // FNV-1a, 64 bits.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{name}_{hash:016x}")
}
