//! Additions of what operators can give as partial sums, such as the gradients of a tensor that
//! several products read: ranks add up their own terms, and reduce the sum once.
//!
//! Fusion would move these sums into the maps that read them, where every term would be reduced by
//! itself. [`gather_additions`] runs before fusion and makes operators of them: additions, or
//! combinations where terms are scaled or subtracted. Those that do not add up partial sums in the
//! plan move into their readers after the search ([`without_idle_additions`]), so they cost no
//! kernel.

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::{Binary, DType, ScalarProgram, Unary};

use crate::{
    fuse::{MAX_INPUTS, compose},
    graph::Graph,
    network::Network,
    operator::{Operator, Rounding},
    operators::{
        accumulate::Accumulate,
        addition::Addition,
        combination::Combination,
        elementwise::{Elementwise, add, all_dims, sub},
        reduce::Reduce,
    },
    partial_sums::adds_up,
    rewrite::{Rewriter, rewrite},
    scalar::{self, ScalarBuilder},
    signature::factor_id,
    tiling::TiledNetwork,
    value::Value,
};

/// Makes an operator of each sum of at least two tensors that operators can give as partial sums
/// and that nothing else reads. They may be scaled and subtracted. Other terms are added to it.
#[must_use]
pub(crate) fn gather_additions(network: &Network) -> Network {
    let sums = Sums { graph: &network.graph, roots: network.roots().into_iter().collect() };
    let mut gathered: BTreeMap<Value, Gathered> = BTreeMap::new();
    let mut is_inner = vec![false; network.graph.n_values()];
    for value in network.graph.values().rev() {
        if is_inner[value.index()] || sums.signed_sum(value).is_none() {
            continue;
        }
        if let Some(found) = sums.gathered(value) {
            found.inner.iter().for_each(|it| is_inner[it.index()] = true);
            gathered.insert(value, found);
        }
    }
    rewrite(network, |rewriter, value| match gathered.get(&value) {
        None if is_inner[value.index()] => None,
        None => Some(rewriter.copy(value)),
        Some(found) => Some(added(rewriter, value, found)),
    })
}

/// A term of a sum.
#[derive(Clone, Copy)]
struct Term {
    value: Value,
    is_subtracted: bool,
}

/// A sum of tensors that operators can give as partial sums, and of others.
struct Gathered {
    operator: Operator,
    operands: Vec<Value>,
    /// The other terms.
    others: Vec<Term>,
    /// The tensors that the operator computes itself.
    inner: Vec<Value>,
}

/// Adds a gathered sum in place of a tensor of the old graph.
fn added(rewriter: &mut Rewriter<'_>, value: Value, sum: &Gathered) -> Value {
    let new = |it: &Value| rewriter.replacement(*it).expect("terms come before their sum");
    let operands: Vec<Value> = sum.operands.iter().map(new).collect();
    let others: Vec<(Value, bool)> =
        sum.others.iter().map(|it| (new(&it.value), it.is_subtracted)).collect();
    let first = rewriter.graph.add(sum.operator.clone(), &operands);
    let sum = others.into_iter().fold(first, |sum, (term, is_subtracted)| match is_subtracted {
        true => sub(&mut rewriter.graph, sum, term),
        false => add(&mut rewriter.graph, sum, term),
    });
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
    /// Returns the operator of a sum of at least two tensors that may be partial sums.
    fn gathered(&self, value: Value) -> Option<Gathered> {
        let mut inner = Vec::new();
        let terms = self.terms(Term { value, is_subtracted: false }, &mut inner);
        self.combined(value, &terms, &inner).or_else(|| self.summed(&terms, inner))
    }

    /// Returns a plain sum of the terms that may be partial sums at once.
    fn summed(&self, terms: &[Term], inner: Vec<Value>) -> Option<Gathered> {
        let is_partial = |it: &&Term| !it.is_subtracted && self.may_be_partial(it.value);
        let (partial, others): (Vec<&Term>, Vec<&Term>) = terms.iter().partition(is_partial);
        let operands: Vec<Value> = partial.into_iter().map(|it| it.value).collect();
        let operator = Addition { n_terms: operands.len() }.into();
        let others = others.into_iter().copied().collect();
        (operands.len() > 1).then_some(Gathered { operator, operands, others, inner })
    }

    /// Returns a combination of the terms that may be partial sums before they are scaled, if some
    /// are scaled or subtracted. The results of a step are no combinations.
    fn combined(&self, value: Value, terms: &[Term], inner: &[Value]) -> Option<Gathered> {
        let mut found = Scaled::default();
        let (partial, others): (Vec<Term>, Vec<Term>) =
            terms.iter().partition(|it| self.find_partial(it.value, &mut found));
        let is_plain = |it: &Term| !it.is_subtracted && found.partial.contains(&it.value);
        if partial.iter().all(is_plain) || self.roots.contains(&value) {
            return None;
        }
        let mut operands: Vec<Value> = partial.iter().map(|it| it.value).collect();
        let program = signed_sum(&partial);
        let mut map = Elementwise::same(self.graph.shape(value), operands.len(), program);
        while let Some(at) = operands.iter().position(|it| found.inner.contains(it)) {
            let scaled: &Elementwise = self.graph.operator_as(operands[at])?;
            let values = self.graph.operands(operands[at]);
            (map, operands) = compose(&map, &operands, at, scaled, &values);
        }
        let (map, operands, n_terms) = with_first(&map, &operands, &found.partial);
        let is_linear = scalar::is_linear_in_first(&map.program, n_terms);
        let inner = [inner, &found.inner].concat();
        let operator = Combination { map, n_terms }.into();
        (n_terms > 1 && is_linear && operands.len() <= MAX_INPUTS).then_some(Gathered {
            operator,
            operands,
            others,
            inner,
        })
    }

    /// Returns whether a tensor with one reader is linear in tensors that may be partial sums.
    /// Appends these, and the maps between them and the tensor.
    fn find_partial(&self, value: Value, found: &mut Scaled) -> bool {
        if self.may_be_partial(value) {
            found.partial.push(value);
            return true;
        }
        let Some(map) = self.graph.operator_as::<Elementwise>(value) else { return false };
        if !self.has_one_reader(value) || map.dtype != DType::F32 {
            return false;
        }
        let operands = self.graph.operands(value);
        let dims = all_dims(&self.graph.shape(value));
        let sets = scalar::linear_inputs(&map.program);
        sets.into_iter().any(|set| {
            let before = found.clone();
            let is_found = set
                .into_iter()
                .all(|at| map.operands[at] == dims && self.find_partial(operands[at], found));
            match is_found {
                true => found.inner.push(value),
                false => *found = before,
            }
            is_found
        })
    }

    /// Returns whether a tensor is the sum or difference of two tensors of its shape.
    fn signed_sum(&self, value: Value) -> Option<Binary> {
        let shape = self.graph.shape(value);
        let map = self.graph.operator_as::<Elementwise>(value)?;
        let dims = all_dims(&shape);
        let is_sum = |it: &Binary| map.program == scalar::binary(*it);
        let function = [Binary::Add, Binary::Subtract].into_iter().find(is_sum);
        let is_of_two = map.operands == [dims.clone(), dims] && map.dtype == DType::F32;
        function.filter(|_| is_of_two && !shape.is_empty())
    }

    /// Returns the terms of a sum, through sums that nothing else reads. Appends these to `inner`.
    fn terms(&self, sum: Term, inner: &mut Vec<Value>) -> Vec<Term> {
        let Some(function) = self.signed_sum(sum.value) else { return vec![sum] };
        let operands = self.graph.operands(sum.value).into_iter().enumerate();
        let of_operand = |(at, value): (usize, Value)| {
            let is_second = function == Binary::Subtract && at == 1;
            let term = Term { value, is_subtracted: sum.is_subtracted != is_second };
            match self.signed_sum(value) {
                Some(_) if self.has_one_reader(value) => {
                    inner.push(value);
                    self.terms(term, inner)
                }
                Some(_) | None => vec![term],
            }
        };
        operands.flat_map(of_operand).collect()
    }

    /// Returns whether one operator reads a tensor, and nothing else needs it.
    fn has_one_reader(&self, value: Value) -> bool {
        self.graph.users(value).len() == 1
            && !self.roots.contains(&value)
            && self.graph.node(value).pinned.is_none()
    }

    /// Returns whether a term with one reader can come as a partial sum, perhaps moved: in another
    /// shape or order, as a part of it, or padded with zeros or joined with others.
    fn may_be_partial(&self, value: Value) -> bool {
        let Some(operator) = self.graph.operator(value) else { return false };
        let signature = operator.signature(&self.graph.operand_shapes(value));
        let is_moved = operator.rounding() == Rounding::Alike && !signature.linear.is_empty();
        self.has_one_reader(value)
            && match is_moved {
                true => self.graph.operands(value).iter().all(|it| self.may_be_partial(*it)),
                false => adds_up(&signature),
            }
    }
}

/// What a term is linear in.
#[derive(Clone, Default)]
struct Scaled {
    /// The tensors that may be partial sums.
    partial: Vec<Value>,
    /// The maps between these and the term.
    inner: Vec<Value>,
}

/// Returns the program that adds up and subtracts its inputs, one after another.
fn signed_sum(terms: &[Term]) -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let mut sum = None;
    for (at, term) in terms.iter().enumerate() {
        let input = it.input(factor_id(at));
        sum = Some(match (sum, term.is_subtracted) {
            (None, false) => input,
            (None, true) => it.unary(Unary::Negate, input),
            (Some(sum), false) => it.add(sum, input),
            (Some(sum), true) => it.sub(sum, input),
        });
    }
    it.finish(sum.expect("sums have terms"))
}

/// Returns a map with these operands before all others, and their number.
fn with_first(
    map: &Elementwise,
    operands: &[Value],
    first: &[Value],
) -> (Elementwise, Vec<Value>, usize) {
    let (mut order, others): (Vec<usize>, Vec<usize>) =
        (0..operands.len()).partition(|at| first.contains(&operands[*at]));
    let n_first = order.len();
    order.extend(others);
    let place = |at: usize| order.iter().position(|it| *it == at).expect("each has a place");
    let numbers: Vec<u8> = (0..operands.len()).map(|at| factor_id(place(at))).collect();
    let map = Elementwise {
        operands: order.iter().map(|it| map.operands[*it].clone()).collect(),
        program: scalar::renumber(&map.program, &numbers),
        ..map.clone()
    };
    (map, order.iter().map(|it| operands[*it]).collect(), n_first)
}

/// Returns the map of a sum that fusion does not move into its readers.
fn as_map(graph: &Graph, value: Value) -> Option<Elementwise> {
    let shape = graph.shape(value);
    let addition = graph.operator_as::<Addition>(value).map(|it| it.as_map(shape));
    let total = graph
        .operator_as::<Accumulate>(value)
        .filter(|it| it.is_total())
        .map(|it| it.as_map(shape));
    addition.or(total).or_else(|| graph.operator_as::<Combination>(value).map(|it| it.map.clone()))
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

/// Returns whether an addition or combination can move into its readers: neither it nor they work
/// on partial sums, it is read as it is stored and stored as it is computed, and its terms are
/// read once or at no cost.
fn is_idle(tiled: &TiledNetwork, value: Value) -> bool {
    let graph = &tiled.network.graph;
    let Some(map) = as_map(graph, value) else { return false };
    let (signature, form) = tiled.signature(value);
    let tiling = tiled.tilings[value.index()];
    let users = graph.users(value);
    let is_bound = tiled.network.roots().contains(&value) || graph.node(value).pinned.is_some();
    let reads_it_as_stored = |reader: &Value| {
        let (signature, form) = tiled.signature(*reader);
        let operands = graph.operands(*reader);
        let of_sum = (0..operands.len()).filter(|it| operands[*it] == value);
        let is_map = |it: &Operator| it.is::<Elementwise>() || it.is::<Reduce>();
        // A form on terms names operands of the reader, which inlining would number anew.
        graph.operator(*reader).is_some_and(is_map)
            && !form.has_terms()
            && n_inlined(graph, *reader) <= MAX_INPUTS
            && of_sum.map(|it| signature.operand_tiling(it, form)).all(|it| it == tiling)
    };
    let is_free = || tiled.conversions(value).iter().all(|it| it.bytes == 0);
    let is_cheap = scalar::is_cheap(&map.program);
    !is_bound
        && !form.has_terms()
        && signature.result_tiling(form) == tiling
        && (users.len() == 1 || is_cheap && is_free())
        && users.iter().all(reads_it_as_stored)
}

/// Returns the number of operands of a reader that computes all additions itself.
fn n_inlined(graph: &Graph, reader: Value) -> usize {
    let n_operands = |it: Value| as_map(graph, it).map_or(1, |it| it.operands.len());
    graph.operands(reader).into_iter().map(n_operands).sum()
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
        let inner = as_map(old, sum).expect("idle operators are additions or combinations");
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
