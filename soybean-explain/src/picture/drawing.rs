//! The drawn parts of a plan: its tensors and their operands, with the bytes of conversions.

use std::collections::BTreeSet;

use soybean_compiler::{Network, Report, Value, tiling::Conversion};
use soybean_plan::Tiling;

use super::layout::Line;

/// A plan's graph.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    /// The tensors, in the order of the graph.
    pub(crate) tensors: Vec<Tensor>,
    /// An edge for each operand of each operator, in the order of the operands.
    pub(crate) edges: Vec<Edge>,
}

/// A tensor of the drawing.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    /// The index in the graph.
    pub(crate) id: usize,
    /// The number of equal tensors of repeated layers for which it is drawn; 1 if it is drawn for
    /// itself alone.
    pub(crate) n_equal: usize,
    /// The number of the user's call for which it is made, if it is known.
    pub(crate) call: Option<usize>,
    pub(crate) name: String,
    /// `input`, `param`, `state`, `activation`, `gradient` or `output`.
    pub(crate) kind: &'static str,
    /// Type and shape: `f32[64, 10]`.
    pub(crate) shape: String,
    /// The tiling in which it is stored.
    pub(crate) tiling: Tiling,
    /// The operator that computes it, with its signature; empty for inputs, parameters and states.
    pub(crate) operator: String,
    /// The layer to which it belongs; empty for the model's own function.
    pub(crate) layer: String,
    /// The file and line of the user's call for which it is made; empty if unknown.
    pub(crate) place: String,
    /// The change of tiling after the operator that computes it.
    pub(crate) change: Change,
    /// True if the loss or an output depends on it. Otherwise it is a gradient or computed from
    /// gradients.
    pub(crate) is_forward: bool,
    /// True for the optimizer's states and their next values.
    pub(crate) is_optimizer_state: bool,
}

/// An edge from an operand to a result.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    /// The operand, by its position in the drawing.
    pub(crate) from: usize,
    /// The result, by its position in the drawing.
    pub(crate) to: usize,
    /// The position among the operands of the result.
    pub(crate) operand: usize,
    /// The change of tiling before the operator.
    pub(crate) change: Change,
}

/// A change of tiling before or after an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// The tilings before and after, if they differ or a rank also reads a halo.
    pub(crate) tilings: Option<(Tiling, Tiling)>,
    /// The bytes that it moves in a training step, or in inference in a prediction, over all ranks.
    pub(crate) bytes: u64,
}

impl Change {
    const NONE: Self = Self { tilings: None, bytes: 0 };

    fn of(conversion: &Conversion) -> Self {
        let Conversion { from, to, bytes, .. } = *conversion;
        Self { tilings: (!conversion.is_identity()).then_some((from, to)), bytes }
    }

    /// Returns the thickness of its line in pixels, relative to the largest change of the drawing.
    pub(crate) fn thickness(&self, most_bytes: u64) -> f64 {
        if self.bytes == 0 {
            1.0
        } else {
            1.5 + 7.0 * (self.bytes as f64 / most_bytes as f64).sqrt()
        }
    }
}

impl Drawing {
    pub(crate) fn new(report: &Report) -> Self {
        let tiled = &report.search().tiled;
        let graph = &tiled.network.graph;
        let weights = tiled.network.weights();
        let mut tensors = tensors(report);
        let mut edges = Vec::new();
        for value in graph.values().filter(|it| tiled.forms[it.index()].is_some()) {
            let operands = graph.operands(value);
            let conversions = tiled.weighted_conversions(value, &weights);
            for (at, (operand, conversion)) in operands.iter().zip(&conversions).enumerate() {
                let change = Change::of(conversion);
                edges.push(Edge { from: operand.index(), to: value.index(), operand: at, change });
            }
            tensors[value.index()].change = Change::of(&conversions[operands.len()]);
        }
        Self { tensors, edges }
    }

    /// Returns the drawing without the optimizer's states.
    pub(crate) fn without_states(&self) -> Self {
        self.only(|it| !it.is_optimizer_state)
    }

    /// Returns the drawing of some tensors and the edges between them.
    pub(super) fn only(&self, is_kept: impl Fn(&Tensor) -> bool) -> Self {
        let kept: Vec<usize> =
            (0..self.tensors.len()).filter(|&it| is_kept(&self.tensors[it])).collect();
        let position = |it: usize| kept.binary_search(&it).ok();
        let edge =
            |it: &Edge| Some(Edge { from: position(it.from)?, to: position(it.to)?, ..it.clone() });
        Self {
            tensors: kept.iter().map(|&it| self.tensors[it].clone()).collect(),
            edges: self.edges.iter().filter_map(edge).collect(),
        }
    }

    /// Returns the edges in the direction of the layout. Results of gradients are above their
    /// operands. No forward work depends on a gradient, so there are no cycles.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line> {
        self.edges.iter().map(|it| {
            let (upper, lower) =
                if self.is_upward(it) { (it.to, it.from) } else { (it.from, it.to) };
            Line { upper, lower, source: it.from }
        })
    }

    /// Returns true for edges between gradients, which lead up.
    pub(super) fn is_upward(&self, edge: &Edge) -> bool {
        !self.tensors[edge.from].is_forward
    }

    /// Returns the bytes of the largest change, or 1 if nothing moves.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.changes().map(|it| it.bytes).max().unwrap_or(0).max(1)
    }

    fn changes(&self) -> impl Iterator<Item = &Change> {
        self.tensors.iter().map(|it| &it.change).chain(self.edges.iter().map(|it| &it.change))
    }
}

fn tensors(report: &Report) -> Vec<Tensor> {
    let tiled = &report.search().tiled;
    let graph = &tiled.network.graph;
    let (mut names, kinds, mut layers) = (report.names(), report.kinds(), report.layers());
    let is_forward = tiled.network.forward();
    let states = states(&tiled.network);
    let tensor = |value: Value| {
        let node = graph.node(value);
        let operator = graph.operator(value).map(|it| format!("{it} {}", tiled.signature(value).0));
        Tensor {
            id: value.index(),
            n_equal: 1,
            call: node.origin,
            is_optimizer_state: states.contains(&value),
            name: names.remove(&value).expect("every tensor has a name"),
            kind: kinds[&value],
            shape: format!("{}{}", node.dtype, node.shape),
            tiling: tiled.tilings[value.index()],
            layer: std::mem::take(&mut layers[value.index()]),
            place: tiled.network.site(value).map_or_else(String::new, |it| it.place.clone()),
            change: Change::NONE,
            is_forward: is_forward[value.index()] || operator.is_none(),
            operator: operator.unwrap_or_default(),
        }
    };
    graph.values().map(tensor).collect()
}

/// Returns the optimizer's states and their next values.
fn states(network: &Network) -> BTreeSet<Value> {
    let groups = network.update_groups();
    let states = groups.iter().flat_map(|group| &group[1..]).copied();
    let sums = network.gradient_sums.iter().map(|it| (it.state, it.next));
    states.chain(sums).flat_map(|(state, next)| [state, next]).collect()
}
