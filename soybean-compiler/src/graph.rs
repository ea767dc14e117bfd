//! The graph: tensors as nodes, data flow as edges.
//!
//! A node is one tensor with its source; an edge leads from an operand to the tensor computed from
//! it. The graph knows nothing of devices.

use std::fmt::{self, Write as _};

use petgraph::{
    Direction,
    graph::{DiGraph, NodeIndex},
    visit::EdgeRef,
};
use soybean_plan::{DType, ImageLayout, Init, Shape};

use crate::{
    operator::{Operator, Phase, Rules},
    pin::Pin,
    value::Value,
};

/// One tensor.
#[derive(Clone, Debug)]
pub struct Node {
    /// The user's name for it; empty where there is none.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape, with padding.
    pub shape: Shape,
    /// Its shape without padding, as the user knows it.
    pub unpadded: Shape,
    /// If it is kept from step to step, the order of its dims, which those of both shapes follow.
    pub layout: ImageLayout,
    /// The source of its elements.
    pub source: Source,
    /// The number of the builder's call for which it was made; see [`crate::Network::sites`].
    pub origin: Option<usize>,
    /// The tiling in which the user wants it stored, if any.
    pub pinned: Option<Pin>,
}

impl Node {
    /// Returns the shape with padding as sums: `[128+4, 64]`.
    #[must_use]
    pub fn shape_with_padding(&self) -> String {
        let extent = |(&user, &stored): (&usize, &usize)| match stored - user {
            0 => user.to_string(),
            padding => format!("{user}+{padding}"),
        };
        let extents: Vec<String> =
            self.unpadded.iter().zip(self.shape.iter()).map(extent).collect();
        format!("[{}]", extents.join(", "))
    }
}

/// The source of a tensor's elements.
#[derive(Clone, Debug)]
pub enum Source {
    /// Fed with each batch.
    Input {
        /// For class labels, the number of classes.
        n_classes: Option<usize>,
        /// A label that all readers ignore, and that need not be a class.
        ignored_label: Option<i32>,
    },
    /// Trained.
    Parameter(Init),
    /// Kept from step to step as the model says; filled at the start as a parameter is.
    Buffer(Init),
    /// Kept by the optimizer from step to step.
    State,
    /// Computed from its operands.
    Operator(Operator),
}

impl Source {
    /// Returns whether the tensor is kept from step to step.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        matches!(self, Self::Parameter(_) | Self::Buffer(_) | Self::State)
    }
}

/// A data-flow graph of tensors. Operands are made before the tensors that are computed from them.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    tensors: DiGraph<Node, (), u32>,
    /// The origin of new tensors.
    origin: Option<usize>,
}

impl Graph {
    /// Says for which of the builder's calls the next tensors are made.
    pub fn set_origin(&mut self, origin: Option<usize>) {
        self.origin = origin;
    }

    /// Returns for which of the builder's calls the next tensors are made.
    #[must_use]
    pub(crate) fn origin(&self) -> Option<usize> {
        self.origin
    }

    /// Adds a tensor that no operator computes.
    pub fn add_source(&mut self, name: &str, dtype: DType, shape: Shape, source: Source) -> Value {
        let (name, origin) = (name.to_owned(), self.origin);
        let (layout, pinned) = (ImageLayout::ChannelsFirst, None);
        let node = Node { name, dtype, shape, unpadded: shape, layout, source, origin, pinned };
        of_index(self.tensors.add_node(node))
    }

    /// Adds a tensor of another graph that no operator computes.
    pub fn add_copy(&mut self, node: &Node) -> Value {
        of_index(self.tensors.add_node(node.clone()))
    }

    /// Adds the result of an operator; its shape follows from the operator's signature.
    pub fn add(&mut self, operator: Operator, operands: &[Value]) -> Value {
        let shapes: Vec<Shape> = operands.iter().map(|&it| self.shape(it)).collect();
        let dtypes: Vec<DType> = operands.iter().map(|&it| self.node(it).dtype).collect();
        let shape = operator.signature(&shapes).result_shape();
        let node = Node {
            name: String::new(),
            dtype: operator.dtype(&dtypes),
            shape,
            unpadded: shape,
            layout: ImageLayout::ChannelsFirst,
            source: Source::Operator(operator),
            origin: self.origin,
            pinned: None,
        };
        let value = self.tensors.add_node(node);
        for operand in operands {
            self.tensors.add_edge(index_of(*operand), value, ());
        }
        of_index(value)
    }

    /// Adds the result of an operator with the type, pin and origin of a tensor of another graph,
    /// and with its shape without padding.
    pub fn add_like(&mut self, node: &Node, operator: Operator, operands: &[Value]) -> Value {
        self.set_origin(node.origin);
        let value = self.add(operator, operands);
        let new = self.node_mut(value);
        // The operator does not say whether its result is rounded.
        (new.dtype, new.pinned, new.origin) = (node.dtype, node.pinned, node.origin);
        new.unpadded = node.unpadded;
        value
    }

    /// Returns the node of a tensor.
    #[must_use]
    pub fn node(&self, value: Value) -> &Node {
        &self.tensors[index_of(value)]
    }

    /// Returns the node of a tensor for changes.
    pub fn node_mut(&mut self, value: Value) -> &mut Node {
        &mut self.tensors[index_of(value)]
    }

    /// Returns the shape of a tensor.
    #[must_use]
    pub fn shape(&self, value: Value) -> Shape {
        self.node(value).shape
    }

    /// Returns the operator that computes a tensor, if one does.
    #[must_use]
    pub fn operator(&self, value: Value) -> Option<&Operator> {
        match &self.node(value).source {
            Source::Operator(operator) => Some(operator),
            Source::Input { .. } | Source::Parameter(_) | Source::Buffer(_) | Source::State => None,
        }
    }

    /// Returns the operator that computes a tensor, if it is of this type.
    #[must_use]
    pub fn operator_as<T: Rules>(&self, value: Value) -> Option<&T> {
        self.operator(value)?.downcast_ref()
    }

    /// Returns the tensors from which a tensor is computed, in the operator's order.
    #[must_use]
    pub fn operands(&self, value: Value) -> Vec<Value> {
        // petgraph lists edges from the newest to the oldest.
        let mut operands: Vec<Value> = self.neighbors(value, Direction::Incoming).collect();
        operands.reverse();
        operands
    }

    /// Returns the operands from which a tensor is computed in this phase.
    #[must_use]
    pub fn operands_in(&self, value: Value, phase: Phase) -> Vec<Value> {
        let operands = self.operands(value).into_iter().enumerate();
        operands.filter(|&(at, _)| self.reads(value, at, phase)).map(|(_, it)| it).collect()
    }

    /// Returns whether a tensor depends on its operand at this position in this phase.
    #[must_use]
    pub fn reads(&self, value: Value, position: usize, phase: Phase) -> bool {
        self.operator(value).is_none_or(|it| it.reads(position, phase))
    }

    /// Returns the tensors computed from a tensor, in order of creation. A tensor that reads it
    /// twice is listed twice.
    #[must_use]
    pub fn users(&self, value: Value) -> Vec<Value> {
        let mut users: Vec<Value> = self.neighbors(value, Direction::Outgoing).collect();
        users.sort_unstable();
        users
    }

    /// Returns whether a tensor is a replica of its operand.
    #[must_use]
    pub fn is_replica(&self, value: Value) -> bool {
        self.operator(value).is_some_and(|it| it.is_replica())
    }

    /// Returns the tensor whose memory a tensor uses: itself, unless it is an alias. Replicas have
    /// memory of their own.
    #[must_use]
    pub fn memory_of(&self, value: Value) -> Value {
        match self.operator(value) {
            Some(operator) if operator.is_alias() && !operator.is_replica() => {
                self.memory_of(self.operands(value)[0])
            }
            Some(_) | None => value,
        }
    }

    fn neighbors(&self, value: Value, direction: Direction) -> impl Iterator<Item = Value> + '_ {
        self.tensors.edges_directed(index_of(value), direction).map(move |edge| match direction {
            Direction::Incoming => of_index(edge.source()),
            Direction::Outgoing => of_index(edge.target()),
        })
    }

    /// Returns all tensors in order of creation, which puts operands before their users.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = Value> + use<> {
        self.tensors.node_indices().map(of_index)
    }

    /// Returns the tensors that were created when there were this many, and later ones.
    pub(crate) fn values_from(&self, n_before: usize) -> impl Iterator<Item = Value> + use<> {
        (n_before..self.n_values()).map(Value::new)
    }

    /// Returns the tensors of the batch, in the order in which they were added.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = Value> {
        self.values().filter(|it| matches!(self.node(*it).source, Source::Input { .. }))
    }

    /// Returns the trained tensors, in the order in which they were added.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = Value> {
        self.values().filter(|it| matches!(self.node(*it).source, Source::Parameter(_)))
    }

    /// Returns whether a tensor is a parameter, or a buffer of the model.
    pub(crate) fn is_parameter(&self, value: Value) -> bool {
        matches!(self.node(value).source, Source::Parameter(_) | Source::Buffer(_))
    }

    /// Returns the number of tensors.
    #[must_use]
    pub fn n_values(&self) -> usize {
        self.tensors.node_count()
    }

    /// Returns the shapes of an operator's operands.
    #[must_use]
    pub fn operand_shapes(&self, value: Value) -> Vec<Shape> {
        self.operands(value).into_iter().map(|it| self.shape(it)).collect()
    }

    /// Returns the floating-point operations that compute a tensor on one device, or the largest
    /// number if that overflows.
    #[must_use]
    pub fn flops(&self, value: Value) -> u64 {
        self.operator(value).map_or(0, |operator| {
            let signature = operator.signature(&self.operand_shapes(value));
            signature.n_points().saturating_mul(operator.flops_per_point())
        })
    }

    /// Marks the roots, and the tensors from which any of them is computed in any phase.
    #[must_use]
    pub fn ancestors(&self, roots: &[Value]) -> Vec<bool> {
        self.ancestors_by(roots, |value| self.operands(value))
    }

    /// Marks the roots, and the tensors from which any of them is computed in this phase.
    #[must_use]
    pub fn ancestors_in(&self, phase: Phase, roots: &[Value]) -> Vec<bool> {
        self.ancestors_by(roots, |value| self.operands_in(value, phase))
    }

    fn ancestors_by(&self, roots: &[Value], operands: impl Fn(Value) -> Vec<Value>) -> Vec<bool> {
        let mut is_ancestor = vec![false; self.n_values()];
        for root in roots {
            is_ancestor[root.index()] = true;
        }
        for value in self.values().rev() {
            if is_ancestor[value.index()] {
                for operand in operands(value) {
                    is_ancestor[operand.index()] = true;
                }
            }
        }
        is_ancestor
    }

    /// Returns the line of one tensor in the text form.
    #[must_use]
    pub fn line(&self, value: Value) -> String {
        let node = self.node(value);
        let mut line = format!("{value}: {}{} = ", node.dtype, node.shape);
        match &node.source {
            Source::Input { .. } => line.push_str("input"),
            Source::Parameter(_) => line.push_str("param"),
            Source::Buffer(_) => line.push_str("buffer"),
            Source::State => line.push_str("state"),
            Source::Operator(operator) => {
                let operands: Vec<String> =
                    self.operands(value).iter().map(ToString::to_string).collect();
                let signature = operator.signature(&self.operand_shapes(value));
                let _ = write!(line, "{operator} {signature} ({})", operands.join(", "));
            }
        }
        if node.layout == ImageLayout::ChannelsLast {
            let _ = write!(line, " {}", node.layout.name());
        }
        if !node.name.is_empty() {
            let _ = write!(line, " \"{}\"", node.name);
        }
        if let Some(pin) = node.pinned {
            let _ = write!(line, " pinned {pin}");
        }
        line
    }
}

fn of_index(index: NodeIndex<u32>) -> Value {
    Value::new(index.index())
}

fn index_of(value: Value) -> NodeIndex<u32> {
    NodeIndex::new(value.index())
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values().try_for_each(|value| writeln!(f, "{}", self.line(value)))
    }
}
