//! Evaluation: runs the model's functions once, on tensors of which only shapes are known, and so builds the compiler's graph.
//!
//! The result of anything that is wrong is poison, which makes what depends on it silent; so one pass reports all independent faults.

mod call;
mod control;
pub(crate) mod expression;
mod operator;
mod parameter;
mod statement;
pub(crate) mod tensor;

use std::{collections::BTreeMap, rc::Rc};

use quote::ToTokens;
use soybean_compiler::Builder;
use syn::{Expr, ExprCall, ItemConst, ItemFn};

use crate::{
    naming::Naming,
    problem::{Message, Problems},
    scope::{Frame, Items},
    source_text::source_text,
    unsupported::Unsupported,
    value::Value,
};

use self::tensor::Assertion;

/// The value of an expression, or how the evaluation leaves it.
type Flow<'a> = Result<Value<'a>, Exit<'a>>;

/// Ways to leave an expression other than by its end.
enum Exit<'a> {
    Return(Value<'a>),
    Break,
    Continue,
}

/// Evaluates the functions of one model.
pub(crate) struct Evaluator<'a> {
    pub(crate) builder: Builder,
    pub(crate) problems: Problems,
    pub(crate) naming: Naming<'a>,
    /// What the macro computed of the user's dims, for rustc to check.
    pub(crate) assertions: Vec<Assertion>,
    root: Rc<Items<'a>>,
    frames: Vec<Frame<'a>>,
    calls: Vec<(&'a ItemFn, &'a ExprCall)>,
    /// Values of consts by their address; `None` while one is being computed.
    constants: BTreeMap<*const ItemConst, Option<Value<'a>>>,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(items: impl IntoIterator<Item = &'a syn::Item>) -> Self {
        let root = Items::new(None, items);
        Self {
            builder: Builder::new(),
            problems: Problems::default(),
            naming: Naming::new(),
            assertions: Vec::new(),
            frames: vec![Frame::new(Rc::clone(&root), Naming::ROOT)],
            root,
            calls: Vec::new(),
            constants: BTreeMap::new(),
        }
    }

    /// The value of an expression outside of all functions, such as an argument of the attribute.
    pub(crate) fn constant(&mut self, expression: &'a Expr) -> Value<'a> {
        let root = Rc::clone(&self.root);
        self.in_items(root, |this| this.value(expression))
    }

    /// Evaluates `forward` on these arguments, whose patterns it binds.
    pub(crate) fn forward(&mut self, function: &'a ItemFn, arguments: Vec<Value<'a>>) -> Value<'a> {
        if let Some(unsupported) = crate::unsupported::function(function) {
            return self.unsupported(unsupported);
        }
        self.body(function, arguments)
    }

    /// Whether the value of this const was asked for and could not be computed.
    pub(crate) fn is_poisoned(&self, item: &ItemConst) -> bool {
        matches!(self.constants.get(&std::ptr::from_ref(item)), Some(Some(value)) if value.is_poisoned())
    }

    fn frame(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("the frame of the module is never removed")
    }

    /// Evaluates in a frame of its own that sees only `items`.
    fn in_items<T>(&mut self, items: Rc<Items<'a>>, evaluate: impl FnOnce(&mut Self) -> T) -> T {
        let call = self.frame().call;
        self.frames.push(Frame::new(items, call));
        let result = evaluate(self);
        self.frames.pop();
        result
    }

    /// The value of an expression that cannot leave its function.
    fn value(&mut self, expression: &'a Expr) -> Value<'a> {
        match self.expression(expression) {
            Ok(value) | Err(Exit::Return(value)) => value,
            Err(Exit::Break | Exit::Continue) => Value::Poison,
        }
    }

    /// Reports a fault with the calls that lead to it.
    fn fault(&mut self, at: &dyn ToTokens, message: impl Into<Message>) -> Value<'a> {
        let mut message = message.into();
        for (_, call) in self.calls.iter().rev().take(4) {
            message = message.note("in", format!("`{}`", source_text(*call)));
        }
        self.problems.report(at, &message);
        Value::Poison
    }

    fn unsupported(&mut self, (at, what, instead): Unsupported<'_>) -> Value<'a> {
        let headline = format!("{what} is not part of the model language");
        self.fault(at, Message::new(headline).help(instead))
    }
}
