//! The layout of each tensor, by a minimum cut.
//!
//! An operator that has both forms computes in one of them. A tensor is copied once if any reader
//! needs the other layout; maps read either. So the elements that are copied are the weight of a
//! cut between the operators that compute with their channels last, such as convolutions, and those
//! that compute as in the model. Source: Greig, Porteous & Seheult 1989; for copies that readers
//! share, Kohli, Ladicky & Torr 2009.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use petgraph::{
    algo::dinics,
    graph::{DiGraph, NodeIndex},
    visit::EdgeRef,
};
use soybean_plan::ImageLayout;

use super::{free_permutation, moves_elements};
use crate::{
    graph::Graph,
    network::Network,
    operator::ChannelsLast,
    operators::{convolve::Convolve, elementwise::Elementwise},
    value::Value,
};

/// More than all copies of a network, but not more than sums of a few can hold.
const NEVER: u64 = 1 << 60;

/// The weight of an element that is copied: it is written and read once more. For a map that reads
/// an element in the other layout the weight is 1, because its neighbors are read apart.
const COPY: u64 = 4;

/// The fewest channels of a group with which convolutions are forced to compute with their channels
/// last. Other groups, such as those of depthwise convolutions, do as their neighbors.
const FEWEST_OF_GROUP: usize = 8;

/// Which operators of a network compute with their channels last.
pub(super) struct Layouts {
    is_last: Vec<bool>,
    /// The layout of each result.
    of_results: Vec<ImageLayout>,
    /// The layout of each tensor that a step leaves.
    left: BTreeMap<Value, ImageLayout>,
}

impl Layouts {
    pub(super) fn of(network: &Network) -> Self {
        let graph = &network.graph;
        let is_last = Cut::new(network).channels_last();
        let layout = |value: Value| match is_last[value.index()] && has_moved_result(graph, value) {
            true => ImageLayout::ChannelsLast,
            false => ImageLayout::ChannelsFirst,
        };
        let of_results: Vec<ImageLayout> = graph.values().map(layout).collect();
        let fetched = network.fetched().into_iter().map(|it| (it, ImageLayout::ChannelsFirst));
        let replacements =
            network.replacements().map(|(kept, next)| (next, of_results[kept.index()]));
        let left = fetched.chain(replacements).collect();
        Self { is_last, of_results, left }
    }

    /// Returns the layout of a tensor that a step leaves: the user's order, or for the next value
    /// of a kept tensor the same as of that. Returns `None` for other tensors.
    pub(super) fn left(&self, value: Value) -> Option<ImageLayout> {
        self.left.get(&value).copied()
    }

    /// Returns whether the operator of a tensor computes with its channels last.
    pub(super) fn is_last(&self, value: Value) -> bool {
        self.is_last[value.index()]
    }

    /// Returns the layout in which a tensor is computed.
    pub(super) fn of_result(&self, value: Value) -> ImageLayout {
        self.of_results[value.index()]
    }
}

/// Returns the form of a tensor's operator with the channels last, if it has one.
fn form(graph: &Graph, value: Value) -> Option<ChannelsLast> {
    graph.operator(value)?.channels_last(&graph.operand_shapes(value))
}

fn has_moved_result(graph: &Graph, value: Value) -> bool {
    graph.node(value).source.is_kept()
        || free_permutation(graph, value).is_some()
        || form(graph, value).is_some_and(|it| it.result)
}

/// A graph whose edges weigh the elements that are copied if their ends are on different sides.
struct Cut {
    graph: DiGraph<(), u64>,
    last: NodeIndex,
    first: NodeIndex,
    /// The node of each operator.
    nodes: Vec<NodeIndex>,
}

impl Cut {
    fn new(network: &Network) -> Self {
        let tensors = &network.graph;
        let mut graph = DiGraph::new();
        let (last, first) = (graph.add_node(()), graph.add_node(()));
        let fixed = fetched_or_replaced_by_fetched(network);
        let nodes = tensors
            .values()
            .map(|value| match choice(tensors, value) {
                _ if fixed.contains(&value) => first,
                Choice::Last => last,
                Choice::First => first,
                Choice::Either => graph.add_node(()),
            })
            .collect();
        let mut this = Self { graph, last, first, nodes };
        let mut readers: Vec<Vec<NodeIndex>> = vec![Vec::new(); tensors.n_values()];
        let mut maps = readers.clone();
        for value in tensors.values().filter(|it| free_permutation(tensors, *it).is_none()) {
            let moved = form(tensors, value).map(|it| it.operands);
            for (at, operand) in tensors.operands(value).into_iter().enumerate() {
                let is_moved = moved.as_ref().is_some_and(|it| it[at]);
                match is_moved {
                    true if tensors.operator_as::<Elementwise>(value).is_some() => {
                        maps[operand.index()].push(this.nodes[value.index()]);
                    }
                    true => readers[operand.index()].push(this.nodes[value.index()]),
                    false => readers[operand.index()].push(first),
                }
            }
        }
        network.fetched().iter().for_each(|it| readers[it.index()].push(first));
        for (kept, next) in network.replacements() {
            readers[next.index()].push(this.nodes[kept.index()]);
        }
        for value in tensors.values() {
            let shape = tensors.shape(value);
            if moves_elements(&shape, &ImageLayout::ChannelsLast.order(shape.len())) {
                let is_moved = has_moved_result(tensors, value);
                let from = if is_moved { this.nodes[value.index()] } else { first };
                let n_elements = shape.n_elements() as u64;
                this.add_copy(from, &readers[value.index()], COPY * n_elements);
                for &map in &maps[value.index()] {
                    this.graph.add_edge(from, map, n_elements);
                    this.graph.add_edge(map, from, n_elements);
                }
            }
        }
        this
    }

    /// Adds the copy of a tensor, which is made once if the side of any reader is not its own.
    fn add_copy(&mut self, from: NodeIndex, readers: &[NodeIndex], weight: u64) {
        let readers: BTreeSet<NodeIndex> =
            readers.iter().copied().filter(|it| *it != from).collect();
        if readers.is_empty() {
            return;
        }
        let (to_first, to_last) = (self.graph.add_node(()), self.graph.add_node(()));
        self.graph.add_edge(from, to_first, weight);
        self.graph.add_edge(to_last, from, weight);
        for reader in readers {
            self.graph.add_edge(to_first, reader, NEVER);
            self.graph.add_edge(reader, to_last, NEVER);
        }
    }

    /// Marks the operators on the side of the channels last in the smallest cut, of several the one
    /// with the fewest operators there.
    fn channels_last(&self) -> Vec<bool> {
        let (_, flows) = dinics(&self.graph, self.last, self.first);
        let mut is_reached = vec![false; self.graph.node_count()];
        is_reached[self.last.index()] = true;
        let mut queue = VecDeque::from([self.last]);
        while let Some(node) = queue.pop_front() {
            let forward = self.graph.edges(node).filter(|it| flows[it.id().index()] < *it.weight());
            let backward = self.graph.edges_directed(node, petgraph::Direction::Incoming);
            let backward = backward.filter(|it| flows[it.id().index()] > 0);
            let next: Vec<NodeIndex> =
                forward.map(|it| it.target()).chain(backward.map(|it| it.source())).collect();
            for node in next {
                if !std::mem::replace(&mut is_reached[node.index()], true) {
                    queue.push_back(node);
                }
            }
        }
        self.nodes.iter().map(|it| is_reached[it.index()]).collect()
    }
}

/// Returns the kept tensors that the host fetches as they are: outputs themselves, and those whose
/// next value is an output. A tensor that is left has one layout.
fn fetched_or_replaced_by_fetched(network: &Network) -> BTreeSet<Value> {
    let fetched: BTreeSet<Value> = network.fetched().into_iter().collect();
    let is_kept = |it: &Value| network.graph.node(*it).source.is_kept();
    let replaced = network.replacements().filter(|(_, next)| fetched.contains(next));
    let replaced: Vec<Value> = replaced.map(|(kept, _)| kept).collect();
    fetched.into_iter().filter(is_kept).chain(replaced).collect()
}

/// The sides on which an operator can be.
enum Choice {
    Last,
    First,
    Either,
}

fn choice(graph: &Graph, value: Value) -> Choice {
    if free_permutation(graph, value).is_some() {
        return Choice::Either;
    }
    let has_form = graph.node(value).source.is_kept() || form(graph, value).is_some();
    match graph.operator_as::<Convolve>(value) {
        Some(it) if it.groups == 1 || it.filter[1] >= FEWEST_OF_GROUP => Choice::Last,
        _ if has_form => Choice::Either,
        _ => Choice::First,
    }
}
