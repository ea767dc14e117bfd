//! Additions of what operators can give as partial sums, such as the gradients of a tensor that
//! several products read: ranks add up their own terms, and reduce the sum once.
//!
//! Fusion would move these sums into the maps that read them, where every term would be reduced by
//! itself. [`gather_additions`] runs before fusion and makes operators of them. Those that do not
//! add up partial sums in the plan move into their readers after the search
//! ([`without_idle_additions`]), so they cost no kernel.

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::{Binary, DType};

use crate::{
    fuse::{MAX_INPUTS, compose},
    graph::Graph,
    network::Network,
    operator::Operator,
    operators::{
        addition::{Addition, sum},
        elementwise::{Elementwise, add, all_dims},
        permute::Permute,
        reduce::Reduce,
        reshape::Reshape,
    },
    partial_sums::adds_up,
    rewrite::{Rewriter, rewrite},
    scalar,
    signature::TERMS,
    tiling::TiledNetwork,
    value::Value,
};

/// Makes an operator of each sum of at least two tensors that operators can give as partial sums
/// and that nothing else reads. Other terms are added to it.
#[must_use]
pub(crate) fn gather_additions(network: &Network) -> Network {
    let sums = Sums { graph: &network.graph, roots: network.roots().into_iter().collect() };
    let mut gathered: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    let mut is_inner = vec![false; network.graph.n_values()];
    for value in network.graph.values().rev() {
        if is_inner[value.index()] || !sums.is_sum_of_two(value) {
            continue;
        }
        let mut inner = Vec::new();
        let terms = sums.terms(value, &mut inner);
        if terms.iter().filter(|it| sums.may_be_partial(**it)).count() >= 2 {
            inner.iter().for_each(|it| is_inner[it.index()] = true);
            gathered.insert(value, terms);
        }
    }
    rewrite(network, |rewriter, value| match gathered.get(&value) {
        None if is_inner[value.index()] => None,
        None => Some(rewriter.copy(value)),
        Some(terms) => {
            let (partial, others): (Vec<Value>, Vec<Value>) =
                terms.iter().partition(|it| sums.may_be_partial(**it));
            Some(added(rewriter, value, &partial, &others))
        }
    })
}

/// Adds the sum of these terms, in place of a tensor of the old graph.
fn added(rewriter: &mut Rewriter<'_>, value: Value, partial: &[Value], others: &[Value]) -> Value {
    let new = |it: &Value| rewriter.replacement(*it).expect("terms come before their sum");
    let (partial, others): (Vec<Value>, Vec<Value>) =
        (partial.iter().map(new).collect(), others.iter().map(new).collect());
    let addition = Addition { n_terms: partial.len() };
    let sum = rewriter.graph.add(addition.into(), &partial);
    let sum = others.into_iter().fold(sum, |sum, term| add(&mut rewriter.graph, sum, term));
    rewriter.graph.node_mut(sum).pinned = rewriter.old.node(value).pinned;
    sum
}

/// The sums of a network.
struct Sums<'a> {
    graph: &'a Graph,
    /// The results of a step, which are computed as they are.
    roots: BTreeSet<Value>,
}

impl Sums<'_> {
    /// Returns whether a tensor is the sum of two tensors of its shape.
    fn is_sum_of_two(&self, value: Value) -> bool {
        let shape = self.graph.shape(value);
        let is_sum = |it: &Elementwise| {
            let dims = all_dims(&shape);
            it.operands == [dims.clone(), dims]
                && it.dtype == DType::F32
                && it.program == scalar::binary(Binary::Add)
        };
        !shape.is_empty() && self.graph.operator_as::<Elementwise>(value).is_some_and(is_sum)
    }

    /// Returns the terms of a sum, through sums that nothing else reads. Appends these to `inner`.
    fn terms(&self, sum: Value, inner: &mut Vec<Value>) -> Vec<Value> {
        let operands = self.graph.operands(sum).into_iter();
        let of_operand = |operand: Value| match self.is_sum_of_two(operand) {
            true if self.has_one_reader(operand) => {
                inner.push(operand);
                self.terms(operand, inner)
            }
            true | false => vec![operand],
        };
        operands.flat_map(of_operand).collect()
    }

    /// Returns whether one operator reads a tensor, and nothing else needs it.
    fn has_one_reader(&self, value: Value) -> bool {
        self.graph.users(value).len() == 1
            && !self.roots.contains(&value)
            && self.graph.node(value).pinned.is_none()
    }

    /// Returns whether a term with one reader can come as a partial sum, perhaps in another shape.
    fn may_be_partial(&self, value: Value) -> bool {
        let Some(operator) = self.graph.operator(value) else { return false };
        let is_moved = operator.is::<Permute>() || operator.is::<Reshape>();
        let signature = operator.signature(&self.graph.operand_shapes(value));
        self.has_one_reader(value)
            && match is_moved {
                true => self.may_be_partial(self.graph.operands(value)[0]),
                false => adds_up(&signature),
            }
    }
}

/// Moves the additions that add up no partial sums into their readers, where that changes no
/// conversion.
#[must_use]
pub(crate) fn without_idle_additions(tiled: &TiledNetwork) -> TiledNetwork {
    let graph = &tiled.network.graph;
    let idle: Vec<bool> = graph.values().map(|it| is_idle(tiled, it)).collect();
    if !idle.contains(&true) {
        return tiled.clone();
    }
    let (mut tilings, mut forms) = (Vec::new(), Vec::new());
    let network = rewrite(&tiled.network, |rewriter, value| {
        if idle[value.index()] {
            return None;
        }
        tilings.push(tiled.tilings[value.index()]);
        forms.push(tiled.forms[value.index()].clone());
        let reads_idle = graph.operands(value).iter().any(|it| idle[it.index()]);
        Some(if reads_idle { inlined(rewriter, value, &idle) } else { rewriter.copy(value) })
    });
    let settled = TiledNetwork { network, mesh: tiled.mesh, tilings, forms };
    debug_assert_eq!(settled.bytes(), tiled.bytes(), "no conversion changes");
    settled
}

/// Returns whether an addition can move into its readers: it adds up no partial sums, is read as it
/// is stored and stored as it is computed, and its terms are read once or at no cost.
fn is_idle(tiled: &TiledNetwork, value: Value) -> bool {
    let graph = &tiled.network.graph;
    let Some(Addition { n_terms }) = graph.operator_as(value) else { return false };
    let (signature, form) = tiled.signature(value);
    let tiling = tiled.tilings[value.index()];
    let users = graph.users(value);
    let is_bound = tiled.network.roots().contains(&value) || graph.node(value).pinned.is_some();
    let reads_it_as_stored = |reader: &Value| {
        let (signature, form) = tiled.signature(*reader);
        let operands = graph.operands(*reader);
        let of_sum = (0..operands.len()).filter(|it| operands[*it] == value);
        let is_map = |it: &Operator| it.is::<Elementwise>() || it.is::<Reduce>();
        graph.operator(*reader).is_some_and(is_map)
            && n_inlined(graph, *reader) <= MAX_INPUTS
            && of_sum.map(|it| signature.operand_tiling(it, form)).all(|it| it == tiling)
    };
    let is_free = || tiled.conversions(value).iter().all(|it| it.bytes == 0);
    let is_cheap = scalar::is_cheap(&sum(*n_terms));
    !is_bound
        && !form.0.contains(&Some(TERMS))
        && signature.result_tiling(form) == tiling
        && (users.len() == 1 || is_cheap && is_free())
        && users.iter().all(reads_it_as_stored)
}

/// Returns the number of operands of a reader that computes all additions itself.
fn n_inlined(graph: &Graph, reader: Value) -> usize {
    let n_terms = |it: Value| graph.operator_as(it).map_or(1, |it: &Addition| it.n_terms);
    graph.operands(reader).into_iter().map(n_terms).sum()
}

/// Adds a map or reduction that computes its idle additions itself.
fn inlined(rewriter: &mut Rewriter<'_>, value: Value, idle: &[bool]) -> Value {
    let old = rewriter.old;
    let operator = old.operator(value).expect("additions have readers");
    let reduce = operator.downcast_ref::<Reduce>();
    let map = operator.downcast_ref::<Elementwise>().or(reduce.map(|it| &it.map));
    let mut map = map.expect("maps and reductions read idle additions").clone();
    let mut operands = old.operands(value);
    while let Some(at) = operands.iter().position(|it| idle[it.index()]) {
        let sum = operands[at];
        let addition: &Addition = old.operator_as(sum).expect("idle operators are additions");
        let inner = addition.as_map(old.shape(sum));
        (map, operands) = compose(&map, &operands, at, &inner, &old.operands(sum));
    }
    let operator = match reduce {
        Some(reduce) => Reduce { map, ..reduce.clone() }.into(),
        None => map.into(),
    };
    let new = |it: &Value| rewriter.replacement(*it).expect("operands come before their readers");
    let operands: Vec<Value> = operands.iter().map(new).collect();
    rewriter.graph.add_like(old.node(value), operator, &operands)
}
