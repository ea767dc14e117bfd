//! Layers from other modules and crates, as the relay delivers them to a model or another layer.
//!
//! A *unit* is one layer: its item and the targets of its paths. A *bundle* is a unit with the
//! units of all layers that it uses. The ids of units are unique across crates, so layers of one
//! name are not confused.

use std::collections::BTreeMap;

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt, quote};
use syn::{Item, LitStr, braced, parse::ParseStream};

use crate::{dependency::Dependency, scope::Definition};

/// The target of a path.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Link {
    /// The layer with this id.
    To(String),
    /// An item that is not marked as a layer.
    Unmarked,
    /// A layer with errors, which have been reported at its definition.
    Faulty,
}

/// A layer.
pub(crate) struct Unit {
    pub(crate) item: Item,
    pub(crate) links: BTreeMap<String, Link>,
    /// The name of the crate that defines it.
    pub(crate) crate_name: String,
    tokens: TokenStream,
}

impl Unit {
    pub(crate) fn definition(&self) -> Definition<'_> {
        match &self.item {
            Item::Const(it) => Definition::Constant(it),
            Item::Fn(it) => Definition::Function(it),
            _ => unreachable!("only functions and consts are relayed"),
        }
    }
}

/// All layers that an item uses, with the paths of those that it uses directly.
#[derive(Default)]
pub(crate) struct Layers {
    pub(crate) units: BTreeMap<String, Unit>,
    pub(crate) links: BTreeMap<String, Link>,
}

impl Layers {
    /// Collects the layers of the bundles that arrived for these dependencies, in their order.
    pub(crate) fn new(dependencies: &[Dependency], bundles: Vec<Bundle>) -> Self {
        let mut layers = Self::default();
        for (dependency, bundle) in dependencies.iter().zip(bundles) {
            layers.links.insert(dependency.key.clone(), bundle.root);
            layers.units.extend(bundle.units);
        }
        layers
    }

    /// Returns whether one of them has errors, which have been reported at its definition.
    pub(crate) fn has_errors(&self) -> bool {
        let links = self.units.values().map(|it| &it.links).chain([&self.links]);
        links.flat_map(BTreeMap::values).any(|link| match link {
            Link::To(id) => !self.units.contains_key(id),
            Link::Unmarked => false,
            Link::Faulty => true,
        })
    }

    /// Returns unknown layers, for an item that has errors itself.
    pub(crate) fn unknown(dependencies: &[Dependency]) -> Self {
        let links = dependencies.iter().map(|it| (it.key.clone(), Link::Faulty));
        Self { units: BTreeMap::new(), links: links.collect() }
    }
}

/// The tokens that a layer's macro passes on.
pub(crate) struct Bundle {
    root: Link,
    units: BTreeMap<String, Unit>,
}

impl Bundle {
    /// Returns the tokens of the bundle of a layer that uses `layers`.
    pub(crate) fn tokens(id: &str, item: &TokenStream, layers: &Layers) -> TokenStream {
        let mut tokens = quote!(#id);
        unit_tokens((id, &crate_name()), item, &layers.links, &mut tokens);
        for (id, unit) in &layers.units {
            unit_tokens((id, &unit.crate_name), &unit.tokens, &unit.links, &mut tokens);
        }
        tokens
    }

    /// Returns the tokens of the bundle of a layer with errors.
    pub(crate) fn with_errors() -> TokenStream {
        quote!("")
    }
}

impl Bundle {
    /// Parses a bundle for an item with the span `item`.
    pub(crate) fn parse(input: ParseStream<'_>, item: Span) -> syn::Result<Self> {
        let content;
        braced!(content in input);
        let mut units = BTreeMap::new();
        if content.is_empty() {
            return Ok(Self { root: Link::Unmarked, units });
        }
        let root = link(content.parse::<LitStr>()?.value());
        while !content.is_empty() {
            let id = content.parse::<LitStr>()?.value();
            let crate_name = content.parse::<LitStr>()?.value();
            let (of_item, of_links);
            braced!(of_item in content);
            braced!(of_links in content);
            let tokens = located(of_item.parse()?, item);
            let mut links = BTreeMap::new();
            while !of_links.is_empty() {
                let path = of_links.parse::<LitStr>()?.value();
                links.insert(path, link(of_links.parse::<LitStr>()?.value()));
            }
            let item = syn::parse2(tokens.clone())?;
            units.insert(id, Unit { item, links, crate_name, tokens });
        }
        Ok(Self { root, units })
    }
}

fn link(id: String) -> Link {
    if id.is_empty() { Link::Faulty } else { Link::To(id) }
}

/// Returns the name of the crate that is compiled.
pub(crate) fn crate_name() -> String {
    std::env::var("CARGO_CRATE_NAME").unwrap_or_default()
}

fn unit_tokens(
    (id, crate_name): (&str, &str),
    item: &TokenStream,
    links: &BTreeMap<String, Link>,
    tokens: &mut TokenStream,
) {
    let links = links.iter().map(|(path, link)| {
        let id = match link {
            Link::To(id) => id.as_str(),
            Link::Unmarked | Link::Faulty => "",
        };
        quote!(#path #id)
    });
    let links: TokenStream = links.collect();
    tokens.append_all(quote!(#id #crate_name { #item } { #links }).into_token_stream());
}

/// Resolves tokens at `item` without the macros that relayed them, so that messages show the
/// layer's own source alone.
fn located(tokens: TokenStream, item: Span) -> TokenStream {
    let located = |token| match token {
        TokenTree::Group(group) => {
            let mut result = Group::new(group.delimiter(), located(group.stream(), item));
            result.set_span(group.span().resolved_at(item));
            TokenTree::Group(result)
        }
        mut other => {
            other.set_span(other.span().resolved_at(item));
            other
        }
    };
    tokens.into_iter().map(located).collect()
}
