//! Values: what an expression of a model stands for while the crate is built.

use std::rc::Rc;

use soybean_compiler::Argument;
use syn::ExprCall;

/// A tensor of the graph, or something known completely.
#[derive(Clone)]
pub(crate) enum Value<'a> {
    /// A tensor, known but for its elements.
    Tensor(soybean_compiler::Value),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Text(String),
    /// An array.
    List(Vec<Value<'a>>),
    Tuple(Vec<Value<'a>>),
    /// A range, or what a method of arrays and ranges made of one.
    Sequence(Vec<Value<'a>>),
    /// How a parameter is filled.
    Init(Rc<InitCall<'a>>),
    /// `..`, all dims.
    All,
    /// The value of something that is wrong and has been reported; whatever depends on it is silent.
    Poison,
}

/// A call such as `he_normal()`; which shape it is for is known only at its `param`.
pub(crate) struct InitCall<'a> {
    pub(crate) name: String,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) call: &'a ExprCall,
}

impl Value<'_> {
    pub(crate) const UNIT: Self = Self::Tuple(Vec::new());

    /// What kind of thing it is, with its article.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "a tensor",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Boolean(_) => "a bool",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Tuple(_) => "a tuple",
            Self::Sequence(_) => "a range",
            Self::Init(_) => "an init",
            Self::All => "`..`",
            Self::Poison => "unknown",
        }
    }

    /// Whether it, or a member of it, is the value of something wrong.
    pub(crate) fn is_poisoned(&self) -> bool {
        match self {
            Self::Poison => true,
            Self::List(members) | Self::Tuple(members) | Self::Sequence(members) => {
                members.iter().any(Self::is_poisoned)
            }
            Self::Tensor(_)
            | Self::Integer(_)
            | Self::Float(_)
            | Self::Boolean(_)
            | Self::Text(_)
            | Self::Init(_)
            | Self::All => false,
        }
    }

    /// The same as an argument of an operator; `None` if it, or a member of it, cannot be one.
    pub(crate) fn to_argument(&self) -> Option<Argument> {
        Some(match self {
            Self::Tensor(value) => Argument::Tensor(*value),
            Self::Integer(number) => Argument::Integer(*number),
            Self::Float(number) => Argument::Float(*number),
            Self::Boolean(value) => Argument::Boolean(*value),
            Self::Text(text) => Argument::Text(text.clone()),
            Self::List(members) | Self::Tuple(members) => {
                Argument::List(members.iter().map(Self::to_argument).collect::<Option<_>>()?)
            }
            Self::All => Argument::All,
            Self::Sequence(_) | Self::Init(_) | Self::Poison => return None,
        })
    }

    /// The value of an operator's result.
    pub(crate) fn from_argument(argument: Argument) -> Self {
        match argument {
            Argument::Tensor(value) => Self::Tensor(value),
            Argument::Integer(number) => Self::Integer(number),
            Argument::Float(number) => Self::Float(number),
            Argument::Boolean(value) => Self::Boolean(value),
            Argument::Text(text) => Self::Text(text),
            Argument::List(members) => {
                Self::List(members.into_iter().map(Self::from_argument).collect())
            }
            Argument::All => Self::All,
        }
    }
}
