//! The one walk by which passes make a network from another.

use std::collections::BTreeMap;

use crate::{graph::Graph, network::Network, value::Value};

/// A network that is being made from another one, tensor by tensor.
pub(crate) struct Rewriter<'a> {
    /// The graph that is read.
    pub(crate) old: &'a Graph,
    /// The graph that is made.
    pub(crate) graph: Graph,
    /// For each tensor of the old graph, the one that replaces it.
    replacements: BTreeMap<Value, Value>,
}

impl Rewriter<'_> {
    /// Returns the replacement of a tensor of the old graph; `None` if it was removed or its turn
    /// is still to come.
    pub(crate) fn replacement(&self, value: Value) -> Option<Value> {
        self.replacements.get(&value).copied()
    }

    /// Returns the replacements of a tensor's operands.
    pub(crate) fn operands(&self, value: Value) -> Vec<Value> {
        self.old.operands(value).iter().map(|it| self.replacements[it]).collect()
    }

    /// Adds a tensor of the old graph: a source, or the same operator of the operands'
    /// replacements.
    pub(crate) fn copy(&mut self, value: Value) -> Value {
        let node = self.old.node(value);
        match self.old.operator(value) {
            None => self.graph.add_copy(node),
            Some(operator) => {
                let operands = self.operands(value);
                self.graph.add_like(node, operator.clone(), &operands)
            }
        }
    }
}

/// Makes a network from another one. The rule is called for each tensor, operands first; it adds
/// the tensor's replacement and returns it, or returns `None` to remove the tensor.
pub(crate) fn rewrite(
    network: &Network,
    mut rule: impl FnMut(&mut Rewriter<'_>, Value) -> Option<Value>,
) -> Network {
    let old = &network.graph;
    let mut rewriter = Rewriter { old, graph: Graph::default(), replacements: BTreeMap::new() };
    for value in old.values() {
        rewriter.graph.set_origin(old.node(value).origin);
        if let Some(new) = rule(&mut rewriter, value) {
            rewriter.replacements.insert(value, new);
        }
    }
    network.remapped(rewriter.graph, &rewriter.replacements)
}
