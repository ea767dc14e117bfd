//! Evaluation: runs the model's functions once on tensors with known shapes and unknown elements.
//! This builds the compiler's graph.
//!
//! The result of an expression with an error is a poisoned value. Errors that depend on it are not
//! reported, so one pass reports all independent errors.

mod argument;
mod assertion;
mod budget;
pub(crate) mod call;
mod closure;
mod control;
mod custom;
pub(crate) mod expression;
mod matching;
mod operator;
pub(crate) mod parameter;
pub(crate) mod scope;
mod statement;
mod structure;
pub(crate) mod tensor;

use std::{collections::BTreeMap, rc::Rc};

use quote::ToTokens;
use soybean_compiler::Builder;
use syn::{Expr, ExprCall, ItemConst, ItemFn, Macro};

use crate::{
    diagnostic::{Diagnostic, Diagnostics},
    layers::{Layers, Link},
    naming::Naming,
    scope::{Definition, Frame, Items, Origin, Owner},
    source_text::{place, place_text, relative_place, source_text},
    unsupported::Unsupported,
    value::Value,
};

use self::{assertion::Arguments, budget::Budget, tensor::Assertion};

/// The largest number of calls that a message lists.
const MAX_CALLS: usize = 4;

/// The value of an expression, or the control flow that leaves it.
type Flow<'a> = Result<Value<'a>, Exit<'a>>;

/// Control flow that leaves an expression before its end.
enum Exit<'a> {
    Return(Value<'a>),
    Break,
    Continue,
    /// The budget is spent. No expression is evaluated any more.
    Spent,
}

/// The evaluation of one model's functions.
pub(crate) struct Evaluator<'a> {
    pub(crate) builder: Builder,
    pub(crate) diagnostics: Diagnostics,
    pub(crate) naming: Naming<'a>,
    /// The values of the user's dims as the macro computed them, for rustc to check.
    pub(crate) assertions: Vec<Assertion>,
    /// Tensors whose tiling the model pins, with the tokens of the tiling.
    pub(crate) pins: Vec<(soybean_compiler::Value, &'a Expr)>,
    root: Rc<Items<'a>>,
    pub(crate) layers: &'a Layers,
    frames: Vec<Frame<'a>>,
    calls: Vec<Call<'a>>,
    budget: Budget,
    /// The number of expressions that are being evaluated.
    depth: usize,
    /// Values of consts by their addresses; `None` while one is being computed.
    constants: BTreeMap<*const ItemConst, Option<Value<'a>>>,
    /// The arguments of macro calls by the addresses of the calls.
    macros: BTreeMap<*const Macro, &'a Arguments>,
    /// The first error that rustc reports too, if there is one.
    pub(crate) left_to_rustc: Option<syn::Error>,
    /// The number of consts of the module that are being evaluated.
    n_consts: usize,
    /// Paths to functions and consts of other modules that are no layers, with messages.
    pub(crate) unmarked: Vec<(String, String)>,
}

/// A call that is being evaluated.
struct Call<'a> {
    function: &'a ItemFn,
    call: &'a ExprCall,
    /// The owner of the code that contains the call.
    owner: Owner,
    /// Its file and line.
    place: String,
}

/// The meaning of a path that leads out of its item.
enum Linked<'a> {
    To(Definition<'a>, Rc<Items<'a>>),
    /// An item that is not marked as a layer.
    Unmarked,
    /// An item with errors, which have been reported at its definition.
    Faulty,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(items: impl IntoIterator<Item = &'a syn::Item>, layers: &'a Layers) -> Self {
        let root = Items::root(items, Origin::Model(&layers.links));
        Self {
            builder: Builder::new(),
            diagnostics: Diagnostics::default(),
            naming: Naming::new(),
            assertions: Vec::new(),
            pins: Vec::new(),
            frames: vec![Frame::new(Rc::clone(&root), Naming::ROOT)],
            root,
            layers,
            calls: Vec::new(),
            budget: Budget::default(),
            depth: 0,
            constants: BTreeMap::new(),
            macros: BTreeMap::new(),
            left_to_rustc: None,
            n_consts: 0,
            unmarked: Vec::new(),
        }
    }

    /// Evaluates an expression outside of all functions, such as an argument of the attribute.
    pub(crate) fn constant(&mut self, expression: &'a Expr) -> Value<'a> {
        let root = Rc::clone(&self.root);
        self.in_items(root, |this| this.value(expression))
    }

    /// Begins the evaluation of another entry.
    pub(crate) fn begin_entry(&mut self) {
        let call = self.naming.begin_entry();
        self.frames = vec![Frame::new(Rc::clone(&self.root), call)];
    }

    /// Evaluates an entry on these arguments and binds their patterns.
    pub(crate) fn entry(&mut self, function: &'a ItemFn, arguments: Vec<Value<'a>>) -> Value<'a> {
        if let Some(unsupported) = crate::unsupported::function(function) {
            return self.unsupported(unsupported);
        }
        self.body(function, arguments)
    }

    /// Resolves a path that leads out of the item with these items; `None` if it resolves to
    /// nothing.
    fn linked(&self, items: &Items<'a>, path: &str) -> Option<Linked<'a>> {
        Some(match items.link(path)? {
            Link::Unmarked => Linked::Unmarked,
            Link::Faulty => Linked::Faulty,
            Link::To(id) => match self.layers.units.get(id) {
                Some(unit) => {
                    let item = std::iter::once(&unit.item);
                    Linked::To(unit.definition(), Items::root(item, Origin::Layer(unit)))
                }
                None => Linked::Faulty,
            },
        })
    }

    fn frame(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("the frame of the module is never removed")
    }

    /// Sets the source location of the builder's next calls to these tokens. If a function of the
    /// model contains them, the call in the model's `forward` comes first:
    /// `src/main.rs:32 via :25`.
    pub(crate) fn stand_at(&mut self, tokens: &dyn ToTokens) {
        let layer = self.frame().call.index();
        let mut place = place(tokens);
        if let Some(Call { place: outermost, .. }) = self.calls.first() {
            place = format!("{outermost} via {}", relative_place(&place, outermost));
        }
        self.builder.stand_at(&place, layer);
    }

    /// Evaluates in a new frame that sees only `items`.
    fn in_items<T>(&mut self, items: Rc<Items<'a>>, evaluate: impl FnOnce(&mut Self) -> T) -> T {
        let call = self.frame().call;
        self.frames.push(Frame::new(items, call));
        let result = evaluate(self);
        self.frames.pop();
        result
    }

    /// Evaluates an expression that cannot leave its function.
    fn value(&mut self, expression: &'a Expr) -> Value<'a> {
        match self.expression(expression) {
            Ok(value) | Err(Exit::Return(value)) => value,
            Err(Exit::Break | Exit::Continue | Exit::Spent) => Value::Poison,
        }
    }

    /// Reports an error with the calls that lead to it. An error in a layer of another crate is
    /// reported at the user's call.
    fn report(&mut self, at: &dyn ToTokens, message: impl Into<Diagnostic>) -> Value<'a> {
        // What is not evaluated may look like an error.
        if self.budget.is_spent {
            return Value::Poison;
        }
        let mut message = message.into();
        let mut owner = self.frame().items.owner();
        let mut outer = None;
        if owner == Owner::OtherCrate {
            message = message.note("at", place_text(at));
            outer = self.calls.iter().rposition(|it| it.owner != Owner::OtherCrate);
        }
        for Call { call, owner: of_call, .. } in self.calls.iter().rev().take(MAX_CALLS) {
            let mut note = format!("`{}`", source_text(*call));
            if owner != Owner::Model && *of_call == Owner::Model {
                note.push_str(&format!(", {}", place_text(*call)));
                owner = Owner::Model;
            }
            message = message.note("in", note);
        }
        match outer {
            Some(outer) => self.diagnostics.report(self.calls[outer].call, &message),
            None => self.diagnostics.report(at, &message),
        }
        Value::Poison
    }

    /// Reports an error that rustc reports too if it reads the code: that of consts, of functions
    /// that they call, and of layers.
    fn report_unless_read(&mut self, at: &dyn ToTokens, message: Diagnostic) -> Value<'a> {
        let is_const = |it: &Call<'_>| it.function.sig.constness.is_some();
        let is_read = self.n_consts > 0 || self.calls.last().is_some_and(is_const);
        if !is_read && self.frame().items.is_of_model() {
            return self.report(at, message);
        }
        let error = || syn::Error::new_spanned(at.to_token_stream(), message.text());
        self.left_to_rustc.get_or_insert_with(error);
        Value::Poison
    }

    fn unsupported(&mut self, found: Unsupported<'_>) -> Value<'a> {
        let headline = format!("{} is not part of the model language", found.kind);
        self.report(found.tokens, Diagnostic::new(headline).help(found.instead))
    }
}
