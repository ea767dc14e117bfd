//! The builder: makes a graph from calls by name, as users write them.

use soybean_plan::{DType, Init, Mode, RunScalar, Shape};

use crate::{
    diagnostic::CallDiagnostic,
    entry::{EntryStart, difference},
    graph::{Graph, Node, Source},
    initializers,
    operators::phase_select::PhaseSelect,
    size_limits::check_extents,
    surface::{
        self,
        arguments::Arguments,
        custom::{CUSTOM, CustomGradient},
        share::SHARE,
    },
    value::Value,
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
    /// Returns the kind of the argument, for error messages.
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

    /// Returns the number, if it is one.
    #[must_use]
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Tensor(_) | Self::Boolean(_) | Self::Text(_) | Self::List(_) | Self::All => None,
        }
    }
}

/// The position of a call in the user's source.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The file and the line: `src/model.rs:12`, or `src/model.rs:32 via :25` for an operator at
    /// line 25 in a function that the model calls at line 32; empty if that is not known.
    pub place: String,
    /// The path of the user's functions that leads to the call: `block.3.dense`; empty in the
    /// model's own function.
    pub layer: String,
    /// The name of the operator; empty for inputs, parameters, buffers and states.
    pub operator: String,
}

/// One call of a [`Builder`], by which it can be made again.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    /// The result.
    pub(crate) result: Argument,
    /// The operator and its arguments; `None` for inputs, parameters, buffers and states, which the
    /// graph describes.
    pub(crate) operator: Option<(String, Vec<Argument>)>,
    place: String,
    /// The number of its layer.
    layer: usize,
}

impl Made {
    /// Returns the input, parameter, buffer or state that the call asks for, if it is such a call.
    pub(crate) fn source(&self) -> Option<Value> {
        match (&self.operator, &self.result) {
            (None, Argument::Tensor(value)) => Some(*value),
            (Some((operator, _)), Argument::Tensor(value)) if operator == SHARE => Some(*value),
            (None | Some(_), _) => None,
        }
    }
}

/// Makes a graph, call by call.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    /// The mode for which the model is compiled.
    pub(crate) mode: Mode,
    pub(crate) graph: Graph,
    /// Buffers and states with their next values.
    pub(crate) updates: Vec<(Value, Value)>,
    /// The scalars that programs read so far, in the order in which they number them.
    pub(crate) scalars: Vec<RunScalar>,
    /// The number of calls so far that read noise.
    pub(crate) n_noises: u32,
    /// The user's names of tensors.
    pub(crate) names: Vec<(String, Value)>,
    /// The calls so far.
    pub(crate) calls: Vec<Made>,
    /// The gradients of users' operators.
    pub(crate) custom_gradients: Vec<CustomGradient>,
    /// Tensors whose elements the user chooses from others.
    pub(crate) choices: Vec<Value>,
    /// The starts of entries; none if the model has one entry, `forward`.
    pub(crate) entries: Vec<EntryStart>,
    /// The position of the next calls.
    place: String,
    layer: usize,
    /// The paths of the layers.
    layers: Vec<String>,
}

impl Builder {
    /// Returns a builder with an empty graph, for a model to be trained.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a builder with an empty graph. In inference, operators return their result in
    /// evaluations, and buffers are not updated.
    #[must_use]
    pub fn in_mode(mode: Mode) -> Self {
        Self { mode, ..Self::default() }
    }

    /// Returns the mode for which the model is compiled.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the first tensor in training steps, the second in evaluations.
    pub(crate) fn by_phase(&mut self, train: Value, evaluate: Value) -> Value {
        match self.mode {
            Mode::Training => self.graph.add(PhaseSelect.into(), &[train, evaluate]),
            Mode::Inference => evaluate,
        }
    }

    /// Adds a tensor of the batch.
    ///
    /// # Panics
    /// If the shape has more than [`soybean_plan::MAX_RANK`] dims.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Value {
        self.source(name, dtype, shape, Source::Input { n_classes: None, ignored_label: None })
    }

    /// Adds a trained tensor.
    ///
    /// # Panics
    /// If the shape has more than [`soybean_plan::MAX_RANK`] dims.
    pub fn parameter(&mut self, name: &str, shape: &[usize], init: Init) -> Value {
        self.source(name, DType::F32, shape, Source::Parameter(init))
    }

    /// Adds a tensor that is kept from step to step: operators that take it say what it becomes.
    ///
    /// # Panics
    /// If the shape has more than [`soybean_plan::MAX_RANK`] dims.
    pub fn buffer(&mut self, name: &str, shape: &[usize], init: Init) -> Value {
        self.source(name, DType::F32, shape, Source::Buffer(init))
    }

    /// Adds a tensor that an inference model keeps from prediction to prediction, zero at first.
    /// The operator `assign` says what it becomes.
    ///
    /// # Panics
    /// If the model is trained, or the shape has more than [`soybean_plan::MAX_RANK`] dims.
    pub fn state(&mut self, name: &str, shape: &[usize]) -> Value {
        assert_eq!(self.mode, Mode::Inference, "only inference models have states");
        self.source(name, DType::F32, shape, Source::State)
    }

    /// Asks once more for a parameter, for a call that shares it.
    ///
    /// # Errors
    /// If it is no parameter, or has another shape or other initial values.
    pub fn share_parameter(
        &mut self,
        value: Value,
        shape: &[usize],
        init: Init,
    ) -> Result<(), String> {
        self.share(value, shape, Source::Parameter(init))
    }

    /// Asks once more for a buffer, for a call that shares it.
    ///
    /// # Errors
    /// If it is no buffer, or has another shape or other initial values.
    pub fn share_buffer(
        &mut self,
        value: Value,
        shape: &[usize],
        init: Init,
    ) -> Result<(), String> {
        self.share(value, shape, Source::Buffer(init))
    }

    /// Asks once more for a state, for a call that shares it.
    ///
    /// # Errors
    /// If it is no state, or has another shape.
    pub fn share_state(&mut self, value: Value, shape: &[usize]) -> Result<(), String> {
        self.share(value, shape, Source::State)
    }

    fn share(&mut self, value: Value, shape: &[usize], source: Source) -> Result<(), String> {
        let first = self.graph.node(value);
        let here = Node { shape: Shape::new(shape), source, pinned: None, ..first.clone() };
        if let Some(message) = difference(first, &here, "where its scope begins first") {
            return Err(message);
        }
        let tensor = Argument::Tensor(value);
        self.made(tensor.clone(), Some((SHARE.to_owned(), vec![tensor])));
        Ok(())
    }

    fn source(&mut self, name: &str, dtype: DType, shape: &[usize], source: Source) -> Value {
        self.graph.set_origin(Some(self.calls.len()));
        let value = self.graph.add_source(name, dtype, Shape::new(shape), source);
        self.made(Argument::Tensor(value), None);
        value
    }

    fn made(&mut self, result: Argument, operator: Option<(String, Vec<Argument>)>) {
        let (place, layer) = (self.place.clone(), self.layer);
        self.calls.push(Made { result, operator, place, layer });
    }

    /// Begins an entry: the next calls belong to it. Parameters, buffers and states of equal names
    /// in different entries are one tensor. The plan is measured by `n_calls` steps or predictions
    /// of this entry, together with the calls of the others.
    pub fn begin_entry(&mut self, name: &str, n_calls: u64) {
        // Noise is numbered within a step.
        self.n_noises = 0;
        self.entries.push(EntryStart {
            name: name.to_owned(),
            n_calls,
            first_call: self.calls.len(),
            first_value: self.graph.n_values(),
            freeze: Vec::new(),
            loss: None,
        });
    }

    /// Says what the last entry that was begun minimizes, and by patterns of names which parameters
    /// it does not train. Without entries, the loss is given to the compilation.
    ///
    /// # Panics
    /// If no entry was begun.
    pub fn train_entry(&mut self, loss: Value, freeze: Vec<String>) {
        let entry = self.entries.last_mut().expect("an entry was begun");
        (entry.loss, entry.freeze) = (Some(loss), freeze);
    }

    /// Sets the position of the next calls: the file and line, and the number of the layer, whose
    /// path [`Self::name_layers`] sets.
    pub fn stand_at(&mut self, place: &str, layer: usize) {
        place.clone_into(&mut self.place);
        self.layer = layer;
    }

    /// Tells the paths of the layers by their numbers.
    pub fn name_layers(&mut self, layers: Vec<String>) {
        self.layers = layers;
    }

    /// Says what the user calls a tensor.
    pub fn name_tensor(&mut self, name: &str, value: Value) {
        self.names.push((name.to_owned(), value));
    }

    /// Returns the position of each call so far. A call without a position belongs to the layer in
    /// its parameter's name: `dense.2` of `dense.2.w`.
    #[must_use]
    pub fn sites(&self) -> Vec<Site> {
        let layer = |it: &Made| match self.layers.get(it.layer) {
            Some(layer) if !layer.is_empty() || !it.place.is_empty() => layer.clone(),
            Some(_) | None => self.layer_of_parameter(it),
        };
        let operator = |it: &Made| match &it.operator {
            Some((call, arguments)) if call == CUSTOM => match &arguments[0] {
                Argument::Text(name) => name.clone(),
                _ => call.clone(),
            },
            Some((operator, _)) => operator.clone(),
            None => String::new(),
        };
        let site =
            |it: &Made| Site { place: it.place.clone(), layer: layer(it), operator: operator(it) };
        self.calls.iter().map(site).collect()
    }

    fn layer_of_parameter(&self, made: &Made) -> String {
        let arguments = match &made.operator {
            Some((_, arguments)) => arguments,
            None => std::slice::from_ref(&made.result),
        };
        let layer = |argument: &Argument| {
            let Argument::Tensor(value) = argument else { return None };
            let node = self.graph.node(*value);
            let (layer, _) = node.name.rsplit_once('.')?;
            matches!(node.source, Source::Parameter(_)).then(|| layer.to_owned())
        };
        arguments.iter().find_map(layer).unwrap_or_default()
    }

    /// Gives a parameter or buffer another name.
    pub fn rename_parameter(&mut self, value: Value, name: &str) {
        name.clone_into(&mut self.graph.node_mut(value).name);
    }

    /// Returns the initial values of a parameter of this shape: `zeros()`, `he_normal()`, ..
    ///
    /// # Errors
    /// If there is no such initializer, or its arguments are not what it takes.
    pub fn init(
        &self,
        name: &str,
        arguments: &[Argument],
        shape: &[usize],
    ) -> Result<Init, CallDiagnostic> {
        initializers::resolve(name, arguments, shape)
    }

    /// Calls an operator by its name; argument 0 of a method is the receiver.
    ///
    /// # Errors
    /// If there is no such operator, or its operands do not fit.
    pub fn call(
        &mut self,
        operator: &str,
        arguments: &[Argument],
    ) -> Result<Argument, CallDiagnostic> {
        let Some((form, row)) = surface::find(operator) else {
            return Err(CallDiagnostic::call(format!("unknown operator `{operator}`")));
        };
        self.graph.set_origin(Some(self.calls.len()));
        let n_before = self.graph.n_values();
        let result = (row.build)(self, &Arguments::new(form, row, arguments)?)?;
        for value in self.graph.values_from(n_before) {
            let too_large = |message| CallDiagnostic::call(format!("`{operator}`: {message}"));
            check_extents(&self.shape(value)).map_err(too_large)?;
        }
        self.made(result.clone(), Some((operator.to_owned(), arguments.to_vec())));
        Ok(result)
    }

    /// Returns the shape of a tensor.
    #[must_use]
    pub fn shape(&self, value: Value) -> Shape {
        self.graph.shape(value)
    }

    /// Returns the type of a tensor's elements.
    #[must_use]
    pub fn dtype(&self, value: Value) -> DType {
        self.graph.node(value).dtype
    }

    /// Returns the graph so far.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
}
