//! Scopes: the consts, functions and variables that a name can refer to.

use std::{collections::BTreeMap, rc::Rc};

use syn::{ItemConst, ItemFn, ItemStatic};

use crate::{
    layers::{Link, Unit, crate_name},
    naming::CallId,
    value::Value,
};

/// An item that a model can name.
#[derive(Clone, Copy)]
pub(crate) enum Definition<'a> {
    Function(&'a ItemFn),
    Constant(&'a ItemConst),
    /// A `static`, whose value a model cannot read.
    Static(&'a ItemStatic),
}

/// The items of a module or block, within those of the block around it.
pub(crate) struct Items<'a> {
    parent: Option<Rc<Items<'a>>>,
    definitions: BTreeMap<String, Definition<'a>>,
    origin: Origin<'a>,
}

/// The owner of the items, with the meaning of paths that lead elsewhere.
#[derive(Clone, Copy)]
pub(crate) enum Origin<'a> {
    Model(&'a BTreeMap<String, Link>),
    Layer(&'a Unit),
}

/// The owner of code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Model,
    /// A layer of the model's crate.
    Crate,
    /// A layer of another crate.
    OtherCrate,
}

impl<'a> Items<'a> {
    /// Returns the scope of a block.
    pub(crate) fn within(
        parent: &Rc<Self>,
        items: impl IntoIterator<Item = &'a syn::Item>,
    ) -> Rc<Self> {
        Self::new(Some(Rc::clone(parent)), items, parent.origin)
    }

    /// Returns the scope of a module.
    pub(crate) fn root(
        items: impl IntoIterator<Item = &'a syn::Item>,
        origin: Origin<'a>,
    ) -> Rc<Self> {
        Self::new(None, items, origin)
    }

    fn new(
        parent: Option<Rc<Self>>,
        items: impl IntoIterator<Item = &'a syn::Item>,
        origin: Origin<'a>,
    ) -> Rc<Self> {
        let definition = |item: &'a syn::Item| match item {
            syn::Item::Fn(it) => Some((it.sig.ident.to_string(), Definition::Function(it))),
            syn::Item::Const(it) => Some((it.ident.to_string(), Definition::Constant(it))),
            syn::Item::Static(it) => Some((it.ident.to_string(), Definition::Static(it))),
            _ => None,
        };
        let definitions = items.into_iter().filter_map(definition).collect();
        Rc::new(Self { parent, definitions, origin })
    }

    /// Returns the definition of `name`, and the scope that contains it.
    pub(crate) fn find(self: &Rc<Self>, name: &str) -> Option<(Definition<'a>, Rc<Self>)> {
        match self.definitions.get(name) {
            Some(definition) => Some((*definition, Rc::clone(self))),
            None => self.parent.as_ref()?.find(name),
        }
    }

    /// Returns the target of a path that names nothing here.
    pub(crate) fn link(&self, path: &str) -> Option<&'a Link> {
        match self.origin {
            Origin::Model(links) => links.get(path),
            Origin::Layer(unit) => unit.links.get(path),
        }
    }

    /// Returns whether these are the items of the model's module itself.
    pub(crate) fn is_root(&self) -> bool {
        self.parent.is_none() && self.is_of_model()
    }

    /// Returns whether they are the model's, and not those of a layer from elsewhere.
    pub(crate) fn is_of_model(&self) -> bool {
        matches!(self.origin, Origin::Model(_))
    }

    pub(crate) fn owner(&self) -> Owner {
        match self.origin {
            Origin::Model(_) => Owner::Model,
            Origin::Layer(unit) if unit.crate_name == crate_name() => Owner::Crate,
            Origin::Layer(_) => Owner::OtherCrate,
        }
    }

    /// Returns the names of all functions, or of all consts, that are visible here.
    pub(crate) fn names(&self, is_wanted: fn(&Definition<'_>) -> bool) -> Vec<&str> {
        let mut names = self.parent.as_ref().map_or_else(Vec::new, |it| it.names(is_wanted));
        let here = self.definitions.iter().filter(|(_, definition)| is_wanted(definition));
        names.extend(here.map(|(name, _)| name.as_str()));
        names
    }
}

/// A variable of a function that is being evaluated.
#[derive(Clone)]
pub(crate) struct Variable<'a> {
    pub(crate) name: String,
    pub(crate) value: Value<'a>,
    pub(crate) is_mutable: bool,
}

/// One function that is being evaluated.
#[derive(Clone)]
pub(crate) struct Frame<'a> {
    /// The variables, innermost last. A block removes its own when it ends.
    pub(crate) variables: Vec<Variable<'a>>,
    pub(crate) items: Rc<Items<'a>>,
    /// The number of the call.
    pub(crate) call: CallId,
    /// The iterations of the running loops of this function, counted from 0.
    pub(crate) rounds: Vec<usize>,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(items: Rc<Items<'a>>, call: CallId) -> Self {
        Self { variables: Vec::new(), items, call, rounds: Vec::new() }
    }

    pub(crate) fn variable(&mut self, name: &str) -> Option<&mut Variable<'a>> {
        self.variables.iter_mut().rev().find(|it| it.name == name)
    }
}
