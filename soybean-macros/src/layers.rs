//! Layers from elsewhere, as the relay delivers them to a model or to another layer.
//!
//! A *unit* is one layer: its item and where the paths in it lead. A *bundle* is a unit with those of all layers that it uses. Units have
//! ids that no two layers share, in whichever crates they stand, so that layers of one name are not confused.

use std::collections::BTreeMap;

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt, quote};
use syn::{Item, LitStr, braced, parse::ParseStream};

use crate::{dependency::Dependency, scope::Definition};

/// Where a path leads.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Link {
    /// To the layer with this id.
    To(String),
    /// To something that is not marked as a layer.
    Unmarked,
    /// To something that cannot be used, as has been reported where it is defined.
    Faulty,
}

/// A layer.
pub(crate) struct Unit {
    pub(crate) item: Item,
    pub(crate) links: BTreeMap<String, Link>,
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

/// All layers that an item uses, and how it names those that it uses itself.
#[derive(Default)]
pub(crate) struct Layers {
    pub(crate) units: BTreeMap<String, Unit>,
    pub(crate) links: BTreeMap<String, Link>,
}

impl Layers {
    /// The layers in bundles that came for these dependencies, in their order.
    pub(crate) fn new(dependencies: &[Dependency], bundles: Vec<Bundle>) -> Self {
        let mut layers = Self::default();
        for (dependency, bundle) in dependencies.iter().zip(bundles) {
            layers.links.insert(dependency.key.clone(), bundle.root);
            layers.units.extend(bundle.units);
        }
        layers
    }

    /// Whether something is wrong with one of them, which has been reported where it is defined.
    pub(crate) fn has_faults(&self) -> bool {
        let links = self.units.values().map(|it| &it.links).chain([&self.links]);
        links.flat_map(BTreeMap::values).any(|link| match link {
            Link::To(id) => !self.units.contains_key(id),
            Link::Unmarked => false,
            Link::Faulty => true,
        })
    }

    /// Layers of which nothing is known, for an item that has faults of its own.
    pub(crate) fn unknown(dependencies: &[Dependency]) -> Self {
        let links = dependencies.iter().map(|it| (it.key.clone(), Link::Faulty));
        Self { units: BTreeMap::new(), links: links.collect() }
    }
}

/// What a layer's macro hands on.
pub(crate) struct Bundle {
    root: Link,
    units: BTreeMap<String, Unit>,
}

impl Bundle {
    /// The tokens of the bundle of a layer that uses `layers`.
    pub(crate) fn tokens(id: &str, item: &TokenStream, layers: &Layers) -> TokenStream {
        let mut tokens = quote!(#id);
        unit_tokens(id, item, &layers.links, &mut tokens);
        for (id, unit) in &layers.units {
            unit_tokens(id, &unit.tokens, &unit.links, &mut tokens);
        }
        tokens
    }

    /// The tokens of the bundle of a layer with faults.
    pub(crate) fn faulty() -> TokenStream {
        quote!("")
    }
}

impl Bundle {
    /// Parses a bundle for an item, to whose tokens `item` leads.
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
            let (of_item, of_links);
            braced!(of_item in content);
            braced!(of_links in content);
            let tokens = located(of_item.parse()?, item);
            let mut links = BTreeMap::new();
            while !of_links.is_empty() {
                let path = of_links.parse::<LitStr>()?.value();
                links.insert(path, link(of_links.parse::<LitStr>()?.value()));
            }
            units.insert(id, Unit { item: syn::parse2(tokens.clone())?, links, tokens });
        }
        Ok(Self { root, units })
    }
}

fn link(id: String) -> Link {
    if id.is_empty() { Link::Faulty } else { Link::To(id) }
}

fn unit_tokens(
    id: &str,
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
    tokens.append_all(quote!(#id { #item } { #links }).into_token_stream());
}

/// The tokens without the macros that relayed them, as if they stood where `item` does, so that messages show the layer's own source alone.
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
