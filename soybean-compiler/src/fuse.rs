//! Fusion: elementwise work moves into the kernels that read it.
//!
//! A map is computed inside its readers, and not stored, if all of them are maps or reductions. It
//! must have one reader over the same index space, or be cheaper to compute again than to read. In
//! `bf16`, exponentials are computed again, too: a softmax would add up rounded ones. The
//! tiling search loses nothing: a conversion between a map and its only reader costs the same
//! before and after the map. Pinned tensors are always stored, and so are additions of what may be
//! partial sums (`additions.rs`).

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::{DType, Mode, Precision, ScalarProgram};

use crate::{
    additions::gather_additions,
    graph::Graph,
    network::Network,
    operator::Operator,
    operators::{combination::Combination, elementwise::Elementwise, reduce::Reduce},
    rewrite::rewrite,
    scalar,
    signature::{FactorId, factor_id},
    simplify,
    value::Value,
};

/// The most tensors that one fused kernel reads.
pub(crate) const MAX_INPUTS: usize = 8;

/// The most instructions of one fused kernel, far more than networks need. It keeps long chains of
/// maps in kernels of bounded length.
const MAX_INSTRUCTIONS: usize = 512;

/// Moves elementwise work into the kernels that read it, and simplifies the network again.
#[must_use]
pub fn fuse(network: &Network, precision: Precision) -> Network {
    let network = &gather_additions(network);
    let roots: BTreeSet<Value> = network.roots().into_iter().collect();
    let is_kept: BTreeSet<Value> = network.updates.iter().map(|&(source, _)| source).collect();
    let group_of = sources_by_next(network);
    let mut known = Known::default();
    let fused = rewrite(network, |rewriter, value| {
        let old = rewriter.old;
        let new = match old.operator(value) {
            Some(operator) => {
                let own = group_of
                    .get(&value)
                    .map(|own| own.iter().filter_map(|it| rewriter.replacement(*it)).collect());
                let reader = Reader { graph: &rewriter.graph, known: &known, own, precision };
                let (operator, operands) = reader.fused(operator.clone(), rewriter.operands(value));
                rewriter.graph.add_like(old.node(value), operator, &operands)
            }
            None => rewriter.copy(value),
        };
        if is_kept.contains(&value) {
            known.kept.insert(new);
        }
        let users = old.users(value);
        let is_free = old.node(value).pinned.is_none() && !roots.contains(&value);
        if is_free && users.iter().all(|&it| reads_elementwise(old, it)) {
            known.may_move.insert(new);
            if users.len() == 1 {
                known.has_one_reader.insert(new);
            }
        }
        Some(new)
    });
    simplify(&with_states_in_place(fused))
}

/// Lets the next value of a model's state be computed where the state is, if it is the only one of
/// its entry that reads the state: then no copy is needed.
fn with_states_in_place(network: Network) -> Network {
    if network.mode() == Mode::Training {
        return network;
    }
    let mut network = network;
    for (entry, phase) in network.entries.clone().into_iter().zip(network.evaluations()) {
        let is_of_entry = network.graph.ancestors_in(phase, &network.left_by(phase));
        entry.updates.for_each(|at| in_place(&mut network, at, &is_of_entry));
    }
    network
}

/// Does so for one update, given the tensors that its entry computes.
fn in_place(network: &mut Network, at: usize, is_of_entry: &[bool]) {
    let (state, next) = network.updates[at];
    let readers: Vec<Value> =
        network.graph.users(state).into_iter().filter(|it| is_of_entry[it.index()]).collect();
    if let Some(map) = network.graph.operator_as::<Elementwise>(next)
        && map.program == scalar::identity()
        && let [value] = network.graph.operands(next)[..]
        && readers == [value]
        && network.graph.operator(value).is_some_and(|it| !it.is_alias())
        && !network.updates.iter().any(|it| it.1 == value)
    {
        network.updates[at].1 = value;
    }
}

/// The tensors of the new graph by their readers.
#[derive(Default)]
struct Known {
    /// Tensors that may be computed inside all their readers.
    may_move: BTreeSet<Value>,
    has_one_reader: BTreeSet<Value>,
    /// Tensors that are kept from step to step.
    kept: BTreeSet<Value>,
}

/// Returns, for each next value, the parameter and states that are updated together with it.
fn sources_by_next(network: &Network) -> BTreeMap<Value, BTreeSet<Value>> {
    let mut by_next = BTreeMap::new();
    for group in network.update_groups() {
        let sources: BTreeSet<Value> = group.iter().map(|&(source, _)| source).collect();
        by_next.extend(group.iter().map(|&(_, next)| (next, sources.clone())));
    }
    by_next
}

fn reads_elementwise(graph: &Graph, value: Value) -> bool {
    let is_map = |it: &Operator| it.is::<Elementwise>() || it.is::<Combination>();
    graph.operator(value).is_some_and(|it| is_map(it) || it.is::<Reduce>())
}

/// A kernel into which its operands may move.
struct Reader<'a> {
    graph: &'a Graph,
    known: &'a Known,
    /// For an update, what is updated together with it: all that it may read of what stays.
    own: Option<BTreeSet<Value>>,
    /// The precision to which stored tensors will be rounded.
    precision: Precision,
}

impl Reader<'_> {
    fn fused(&self, operator: Operator, operands: Vec<Value>) -> (Operator, Vec<Value>) {
        if let Some(map) = operator.downcast_ref::<Elementwise>() {
            let (map, operands) = self.absorb(map.clone(), operands, &[]);
            return (map.into(), operands);
        }
        // The terms of a combination are no maps, and stay the first operands.
        if let Some(Combination { map, n_terms }) = operator.downcast_ref::<Combination>() {
            let (map, operands) = self.absorb(map.clone(), operands, &[]);
            return (Combination { map, n_terms: *n_terms }.into(), operands);
        }
        if let Some(reduce) = operator.downcast_ref::<Reduce>() {
            let reduced: Vec<FactorId> = (0..reduce.map.extents.len())
                .map(factor_id)
                .filter(|it| !reduce.kept.contains(it))
                .collect();
            let Reduce { map, combine, kept } = reduce.clone();
            let (map, operands) = self.absorb(map, operands, &reduced);
            return (Reduce { map, combine, kept }.into(), operands);
        }
        (operator, operands)
    }

    /// Moves operands into the map while that is possible and some operand still has each of the
    /// dims in `needed`.
    fn absorb(
        &self,
        map: Elementwise,
        operands: Vec<Value>,
        needed: &[FactorId],
    ) -> (Elementwise, Vec<Value>) {
        let (mut map, mut operands) = (map, operands);
        let mut position = 0;
        while position < operands.len() {
            match self.without(&map, &operands, position) {
                Some((inner, values)) if values.len() <= MAX_INPUTS && has_dims(&inner, needed) => {
                    (map, operands) = (inner, values);
                    position = 0;
                }
                _ => position += 1,
            }
        }
        map.program = scalar::without_detach(&map.program);
        without_unread(&map, &operands)
            .filter(|(map, _)| has_dims(map, needed))
            .unwrap_or((map, operands))
    }

    fn may_read(&self, value: Value) -> bool {
        let memory = self.graph.memory_of(value);
        let is_own = |own: &BTreeSet<Value>| own.contains(&memory);
        self.own.as_ref().is_none_or(is_own) || !self.known.kept.contains(&memory)
    }

    /// Returns whether a map is computed again for each reader rather than stored.
    fn is_recomputed(&self, program: &ScalarProgram) -> bool {
        scalar::is_cheap(program)
            || self.precision == Precision::Bf16 && scalar::is_cheap_exponential(program)
    }

    /// Returns the map with one operand computed inside it, if that is allowed and worth it.
    fn without(
        &self,
        map: &Elementwise,
        operands: &[Value],
        position: usize,
    ) -> Option<(Elementwise, Vec<Value>)> {
        let value = operands[position];
        let inner = self.graph.operator_as::<Elementwise>(value)?;
        let n_instructions = map.program.instructions.len() + inner.program.instructions.len();
        if n_instructions > MAX_INSTRUCTIONS {
            return None;
        }
        let has_same_space = map.operands[position].len() == map.extents.len();
        let is_allowed = self.graph.operands(value).into_iter().all(|it| self.may_read(it));
        let is_worth_it = self.is_recomputed(&inner.program)
            || (has_same_space && self.known.has_one_reader.contains(&value));
        // The registers of a longer program would hold unrounded results.
        let is_exact = inner.dtype == DType::F32 || inner.program.integer_results()[0];
        (self.known.may_move.contains(&value) && is_exact && is_allowed && is_worth_it)
            .then(|| compose(map, operands, position, inner, &self.graph.operands(value)))
    }
}

/// Returns the map without operands that it does not read; `None` if it reads all or none.
fn without_unread(map: &Elementwise, operands: &[Value]) -> Option<(Elementwise, Vec<Value>)> {
    let (read, program) = scalar::compact(&map.program);
    if read.is_empty() || read.len() == operands.len() {
        return None;
    }
    let kept = || read.iter().map(|it| usize::from(*it));
    let dims = kept().map(|it| map.operands[it].clone()).collect();
    Some((
        Elementwise { operands: dims, program, ..map.clone() },
        kept().map(|it| operands[it]).collect(),
    ))
}

fn has_dims(map: &Elementwise, needed: &[FactorId]) -> bool {
    needed.iter().all(|dim| map.operands.iter().any(|ids| ids.contains(dim)))
}

/// Returns the map that computes one of its operands itself, by the inner map of these values.
pub(crate) fn compose(
    map: &Elementwise,
    operands: &[Value],
    position: usize,
    inner: &Elementwise,
    values: &[Value],
) -> (Elementwise, Vec<Value>) {
    let mut kept: Vec<(Value, Vec<FactorId>)> = Vec::new();
    let mut place = |value: Value, ids: Vec<FactorId>| {
        let operand = (value, ids);
        let at = kept.iter().position(|it| *it == operand).unwrap_or_else(|| {
            kept.push(operand);
            kept.len() - 1
        });
        factor_id(at)
    };
    let others: Vec<u8> = (0..operands.len())
        .map(|it| if it == position { 0 } else { place(operands[it], map.operands[it].clone()) })
        .collect();
    let through =
        |ids: &Vec<FactorId>| ids.iter().map(|&id| map.operands[position][id as usize]).collect();
    let of_inner: Vec<u8> = values
        .iter()
        .zip(&inner.operands)
        .map(|(&value, ids)| place(value, through(ids)))
        .collect();
    let program =
        scalar::compose(&map.program, factor_id(position), &others, &inner.program, &of_inner);
    let (values, operands) = kept.into_iter().unzip();
    (Elementwise { operands, program, ..map.clone() }, values)
}
