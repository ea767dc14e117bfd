//! The attributes, and what all of them do with an item before and after their own expansion.

use proc_macro2::TokenStream;
use quote::quote;

use crate::{
    configured,
    expand::{self, Environment},
    layer, operator,
    prepared::Prepared,
    recovery,
    relay::{Arrived, Stage},
    relayed,
    root::{self, Root},
};

/// The attributes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Model,
    Layer,
    Constant,
    Operator,
}

impl Kind {
    const ALL: [(&'static str, Self); 4] = [
        ("model", Self::Model),
        ("layer", Self::Layer),
        ("constant", Self::Constant),
        ("operator", Self::Operator),
    ];

    /// Returns the attribute's name.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|it| it.1 == self).map_or("", |it| it.0)
    }

    /// Returns the attribute of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|it| it.0 == name).map(|it| it.1)
    }
}

/// Expands an attribute.
pub(crate) fn attribute(kind: Kind, attribute: TokenStream, item: TokenStream) -> TokenStream {
    let environment = Environment::read();
    let root = Root::of(&attribute, &environment.manifest);
    let Prepared { item, error } = Prepared::of(item);
    let expansion = match error {
        Some(error) => too_deep(kind, &attribute, &item, &error),
        None if !environment.is_editor && configured::has_conditions(&item) => {
            configured::ask(kind, &attribute, item)
        }
        None => of_kind(kind, attribute, item, &environment),
    };
    root::in_crate(expansion, root.as_ref(), 0, &environment.manifest)
}

/// Expands an attribute once the conditions in the item are decided.
pub(crate) fn configured(kind: Kind, attribute: TokenStream, item: TokenStream) -> TokenStream {
    // The item itself can have a condition.
    if item.is_empty() {
        return item;
    }
    let environment = Environment::read();
    let root = Root::of(&attribute, &environment.manifest);
    let expansion = of_kind(kind, attribute, item, &environment);
    root::in_crate(expansion, root.as_ref(), 0, &environment.manifest)
}

/// Expands the rest of a model or layer.
pub(crate) fn continued(arrived: Arrived) -> TokenStream {
    let environment = Environment::read();
    let root = Root::of(&arrived.state.attribute, &environment.manifest);
    let (expansion, n_modules) = match arrived.state.stage {
        Stage::Layer => (layer::arrived(arrived), 0),
        Stage::Model => relayed::arrived(arrived, &environment),
    };
    root::in_crate(expansion, root.as_ref(), n_modules, &environment.manifest)
}

fn of_kind(
    kind: Kind,
    attribute: TokenStream,
    item: TokenStream,
    environment: &Environment,
) -> TokenStream {
    match kind {
        Kind::Model => expand::expand(attribute, item, environment),
        Kind::Layer | Kind::Constant => layer::expand(kind, attribute, item, environment),
        Kind::Operator => operator::expand(attribute, item, environment),
    }
}

/// Returns what stays of an item whose brackets nest too deep.
fn too_deep(
    kind: Kind,
    attribute: &TokenStream,
    item: &TokenStream,
    error: &syn::Error,
) -> TokenStream {
    let rest = match kind {
        Kind::Model => recovery::model(item, attribute, error),
        Kind::Layer | Kind::Constant => layer::recovered(kind, attribute, item, error),
        Kind::Operator => TokenStream::new(),
    };
    let error = error.to_compile_error();
    quote!(#error #rest)
}
