//! Values of a model's expressions while the crate is built.

use std::rc::Rc;

use soybean_compiler::Argument;
use syn::ExprCall;

/// A tensor of the graph, or a constant.
#[derive(Clone)]
pub(crate) enum Value<'a> {
    /// A tensor, whose elements are unknown.
    Tensor(soybean_compiler::Value),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Text(String),
    /// An array.
    List(Vec<Value<'a>>),
    Tuple(Vec<Value<'a>>),
    /// A struct: the names of its fields and their values.
    Struct(Vec<(String, Value<'a>)>),
    /// A range, or the result of a method of arrays and ranges.
    Sequence(Vec<Value<'a>>),
    /// An initializer of a parameter.
    Init(Rc<InitCall<'a>>),
    /// `..`, all dims.
    All,
    /// The value of an expression with a reported error. Errors that depend on it are not reported.
    Poison,
}

/// A call such as `he_normal()`, whose shape is known only at its `param`.
pub(crate) struct InitCall<'a> {
    pub(crate) name: String,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) call: &'a ExprCall,
}

impl Value<'_> {
    pub(crate) const UNIT: Self = Self::Tuple(Vec::new());

    /// Returns the kind of the value, with its article.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "a tensor",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Boolean(_) => "a bool",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Tuple(_) => "a tuple",
            Self::Struct(_) => "a struct",
            Self::Sequence(_) => "a range",
            Self::Init(_) => "an init",
            Self::All => "`..`",
            Self::Poison => "unknown",
        }
    }

    /// Returns whether the value or a member of it is poisoned.
    pub(crate) fn is_poisoned(&self) -> bool {
        match self {
            Self::Poison => true,
            Self::List(members) | Self::Tuple(members) | Self::Sequence(members) => {
                members.iter().any(Self::is_poisoned)
            }
            Self::Struct(fields) => fields.iter().any(|(_, it)| it.is_poisoned()),
            Self::Tensor(_)
            | Self::Integer(_)
            | Self::Float(_)
            | Self::Boolean(_)
            | Self::Text(_)
            | Self::Init(_)
            | Self::All => false,
        }
    }

    /// Returns the value as an argument of an operator, or `None` if it or a member of it cannot be
    /// one.
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
            Self::Struct(_) | Self::Sequence(_) | Self::Init(_) | Self::Poison => return None,
        })
    }

    /// Returns the value of an operator's result.
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
