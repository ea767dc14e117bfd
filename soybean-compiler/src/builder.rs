//! The builder: makes a graph from calls by name, as users write them.

use soybean_plan::{DType, Init, RunScalar, Shape};

use crate::{
    fault::Fault,
    graph::{Graph, Source, Value},
    initializers,
    surface::{self, arguments::Arguments},
};

/// A value that a call takes or gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A tensor of the graph.
    Tensor(Value),
    /// An integer constant.
    Integer(i64),
    /// A floating-point constant.
    Float(f64),
    /// A truth value.
    Boolean(bool),
    /// A string constant.
    Text(String),
    /// An array or tuple.
    List(Vec<Argument>),
    /// `..`: all dims.
    All,
}

impl Argument {
    /// What it is, for error messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "a tensor",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Boolean(_) => "a truth value",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::All => "`..`",
        }
    }

    /// The number, if it is one.
    #[must_use]
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Tensor(_) | Self::Boolean(_) | Self::Text(_) | Self::List(_) | Self::All => None,
        }
    }
}

/// Makes a graph, call by call.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    pub(crate) graph: Graph,
    /// Buffers with their next values.
    pub(crate) updates: Vec<(Value, Value)>,
    /// The scalars that programs read so far, in the order in which they number them.
    pub(crate) scalars: Vec<RunScalar>,
    /// The number of tensors made so far of which parts are dropped.
    pub(crate) n_dropouts: u32,
}

impl Builder {
    /// A builder with an empty graph.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor of the batch.
    ///
    /// # Panics
    /// If the shape has more than [`soybean_plan::MAX_RANK`] dims.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Value {
        self.graph.add_source(name, dtype, Shape::new(shape), Source::Input { n_classes: None })
    }

    /// Adds a trained tensor.
    ///
    /// # Panics
    /// If the shape has more than [`soybean_plan::MAX_RANK`] dims.
    pub fn parameter(&mut self, name: &str, shape: &[usize], init: Init) -> Value {
        self.graph.add_source(name, DType::F32, Shape::new(shape), Source::Parameter(init))
    }

    /// Adds a tensor that is kept from step to step: operators that take it say what it becomes.
    ///
    /// # Panics
    /// If the shape has more than [`soybean_plan::MAX_RANK`] dims.
    pub fn buffer(&mut self, name: &str, shape: &[usize], init: Init) -> Value {
        self.graph.add_source(name, DType::F32, Shape::new(shape), Source::Buffer(init))
    }

    /// Gives a parameter or buffer another name.
    pub fn rename_parameter(&mut self, value: Value, name: &str) {
        name.clone_into(&mut self.graph.node_mut(value).name);
    }

    /// How a parameter of this shape is filled: `zeros()`, `he_normal()`, ..
    ///
    /// # Errors
    /// If there is no such initializer, or its arguments are not what it takes.
    pub fn init(&self, name: &str, arguments: &[Argument], shape: &[usize]) -> Result<Init, Fault> {
        initializers::resolve(name, arguments, shape)
    }

    /// Calls an operator by its name; argument 0 of a method is the receiver.
    ///
    /// # Errors
    /// If there is no such operator, or its operands do not fit.
    pub fn call(&mut self, operator: &str, arguments: &[Argument]) -> Result<Argument, Fault> {
        let Some((form, row)) = surface::find(operator) else {
            return Err(Fault::call(format!("unknown operator `{operator}`")));
        };
        (row.build)(self, &Arguments::new(form, row, arguments)?)
    }

    /// The shape of a tensor.
    #[must_use]
    pub fn shape(&self, value: Value) -> Shape {
        self.graph.shape(value)
    }

    /// The type of a tensor's elements.
    #[must_use]
    pub fn dtype(&self, value: Value) -> DType {
        self.graph.node(value).dtype
    }

    /// The graph so far.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
}
