//! Products that read permuted operands, and write permuted results, in place.

use std::collections::BTreeSet;

use soybean_plan::{Contraction, Shape, Strides};

use crate::{
    graph::Graph,
    network::Network,
    operator::{Operator, Rules},
    operators::{
        contract::Contract,
        elementwise::{Elementwise, all_dims},
        permute::Permute,
    },
    rewrite::{Rewriter, rewrite},
    signature::{FactorId, factor_id},
    value::Value,
};

/// Returns a product of permuted tensors as a product of the tensors themselves, if that is still a
/// matrix product.
pub(super) fn with_operands_in_place(
    graph: &Graph,
    operator: Operator,
    operands: Vec<Value>,
) -> (Operator, Vec<Value>) {
    let Some(mut contract) = operator.downcast_ref::<Contract>().cloned() else {
        return (operator, operands);
    };
    let mut operands = operands;
    for position in 0..operands.len() {
        let Some(permute) = graph.operator_as::<Permute>(operands[position]) else { continue };
        if graph.node(operands[position]).pinned.is_some() {
            continue;
        }
        let source = graph.operands(operands[position])[0];
        let mut inner = contract.clone();
        let ids = if position == 0 { &mut inner.left } else { &mut inner.right };
        let of_result = ids.clone();
        for (dim, &of_source) in permute.order.iter().enumerate() {
            ids[of_source] = of_result[dim];
        }
        let mut candidates = operands.clone();
        candidates[position] = source;
        if matrices(graph, &inner, &candidates).is_some() {
            (contract, operands) = (inner, candidates);
        }
    }
    (contract.into(), operands)
}

/// Lets products, and maps of products, write the permutation of their result if nothing else reads
/// the result. Returns `None` if there are none.
///
/// The gradient of `W` in `x W^T` is one: differentiation gives `(x^T g)^T`, which is `g^T x`.
pub(super) fn with_results_in_place(network: &Network) -> Option<Network> {
    let results = Results { graph: &network.graph, roots: network.roots().into_iter().collect() };
    let graph = &network.graph;
    let mut is_permuted = vec![false; graph.n_values()];
    for value in graph.values() {
        if let Some((operand, _)) = results.permuted(value) {
            results.inner(operand).iter().for_each(|it| is_permuted[it.index()] = true);
        }
    }
    if !is_permuted.contains(&true) {
        return None;
    }
    Some(rewrite(network, |rewriter, value| match results.permuted(value) {
        Some((operand, order)) => {
            let new = results.add(rewriter, operand, order);
            rewriter.graph.node_mut(new).pinned = graph.node(value).pinned;
            Some(new)
        }
        None if is_permuted[value.index()] => None,
        None => Some(rewriter.copy(value)),
    }))
}

/// The results of a network's operators, which their readers may want in another order.
struct Results<'a> {
    graph: &'a Graph,
    /// The results of a step, which are computed as they are.
    roots: BTreeSet<Value>,
}

impl Results<'_> {
    /// Returns the operand and the order of a permutation that the operator of the operand can
    /// write.
    fn permuted(&self, value: Value) -> Option<(Value, &[usize])> {
        let order = &self.graph.operator_as::<Permute>(value)?.order;
        let operand = self.graph.operands(value)[0];
        self.can_permute(operand, order).then_some((operand, order))
    }

    /// Returns whether a tensor is a product that can be written in this order of its dims, or a
    /// map of such products, and has one reader.
    fn can_permute(&self, value: Value, order: &[usize]) -> bool {
        let is_free = self.graph.users(value).len() == 1
            && !self.roots.contains(&value)
            && self.graph.node(value).pinned.is_none();
        let is_map_of_products = || {
            let mut products = self.mapped(value).into_iter().flatten().peekable();
            products.peek().is_some() && products.all(|it| self.can_permute(it, order))
        };
        is_free && (self.product(value, order).is_some() || is_map_of_products())
    }

    /// Returns the operands of a map that have all of its dims.
    fn mapped(&self, value: Value) -> Option<Vec<Value>> {
        let map = self.graph.operator_as::<Elementwise>(value)?;
        let dims = all_dims(&map.extents);
        let operands = self.graph.operands(value).into_iter().zip(&map.operands);
        Some(operands.filter(|it| *it.1 == dims).map(|it| it.0).collect())
    }

    /// Returns a tensor and the tensors in a map of which it is made: what is computed in another
    /// order.
    fn inner(&self, value: Value) -> Vec<Value> {
        let mapped = self.mapped(value).unwrap_or_default();
        let inner = mapped.into_iter().flat_map(|it| self.inner(it));
        [value].into_iter().chain(inner).collect()
    }

    /// Adds a tensor of the old graph in this order of its dims.
    fn add(&self, rewriter: &mut Rewriter<'_>, value: Value, order: &[usize]) -> Value {
        let new = |rewriter: &Rewriter<'_>, it: Value| {
            rewriter.replacement(it).expect("operands come before their readers")
        };
        let operands = self.graph.operands(value);
        if let Some((contract, operands)) = self.product(value, order) {
            let operands = operands.map(|it| new(rewriter, it));
            return rewriter.graph.add(contract.into(), &operands);
        }
        let map =
            self.graph.operator_as::<Elementwise>(value).expect("a product, or a map of some");
        let dims = all_dims(&map.extents);
        let operands: Vec<Value> = operands
            .into_iter()
            .zip(&map.operands)
            .map(
                |(it, ids)| {
                    if *ids == dims { self.add(rewriter, it, order) } else { new(rewriter, it) }
                },
            )
            .collect();
        rewriter.graph.add(permuted_map(map, order).into(), &operands)
    }

    /// Returns the product that gives another product with its dims in this order, and its
    /// operands.
    fn product(&self, value: Value, order: &[usize]) -> Option<(Contract, [Value; 2])> {
        let Contract { left, right, result } = self.graph.operator_as::<Contract>(value)?.clone();
        let result: Vec<FactorId> = order.iter().map(|&dim| result[dim]).collect();
        let &[x, y] = &self.graph.operands(value)[..] else { return None };
        // Rows of the result are contiguous if its last dim is one of the right operand.
        let is_of = |ids: &[FactorId]| result.last().is_some_and(|it| ids.contains(it));
        let (contract, operands) = match (is_of(&left), is_of(&right)) {
            (false, true) => (Contract { left, right, result }, [x, y]),
            (true, false) => (Contract { left: right, right: left, result }, [y, x]),
            (true, true) | (false, false) => return None,
        };
        let matrices = matrices(self.graph, &contract, &operands)?;
        has_one_batch_stride(&matrices).then_some((contract, operands))
    }
}

/// Returns the map that gives the result of another with its dims in this order.
fn permuted_map(map: &Elementwise, order: &[usize]) -> Elementwise {
    let place = |id: &FactorId| {
        let found = order.iter().position(|&dim| dim == usize::from(*id));
        factor_id(found.expect("the order has every dim"))
    };
    let dims = all_dims(&map.extents);
    let operands = map.operands.iter().map(|ids| match *ids == dims {
        // These are permuted themselves.
        true => ids.clone(),
        false => ids.iter().map(place).collect(),
    });
    Elementwise {
        extents: order.iter().map(|&dim| map.extents[dim]).collect(),
        operands: operands.collect(),
        ..map.clone()
    }
}

fn matrices(graph: &Graph, contract: &Contract, operands: &[Value]) -> Option<Contraction> {
    let shapes: Vec<_> = operands.iter().map(|&it| graph.shape(it)).collect();
    let result = contract.signature(&shapes).result_shape();
    contract.as_matrices(&shapes[0], &shapes[1], &result)
}

/// Returns whether the batch dims are as good as one, with one stride in each matrix. GPUs compute
/// other batches in several calls, which cost more than a permutation.
fn has_one_batch_stride(matrices: &Contraction) -> bool {
    let Contraction { batch, left, right, result, .. } = matrices;
    let is_even = |extents: &Shape, strides: &Strides| {
        let follows = |dim: usize| strides.0[dim - 1] == strides.0[dim] * extents[dim];
        (1..extents.len()).all(follows)
    };
    [left, right, result].into_iter().all(|it| is_even(batch, &it.batch))
}
