//! Attention with its matrix of scores, from products and a softmax.

use soybean_plan::{Register, Shape};

use super::{Options, Seen, score};
use crate::{
    builder::Builder,
    operators::{
        attend::bias::is_outside, contract::Contract, elementwise::all_dims, iota::Iota,
        reshape::Reshape,
    },
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
    surface::{dropout, map, map_one, softmax::Shifted},
    value::Value,
};

/// The value of a masked score. Its exponential is 0 beside any other, and unlike an infinity it is
/// a number in every difference.
const MASKED: f64 = -1e30;

/// Builds attention of queries, keys and values.
pub(super) fn attention(
    builder: &mut Builder,
    [query, key, value]: [Value; 3],
    options: &Options,
) -> Value {
    let (n_batch, n_shared) = (builder.shape(query).len() - 2, builder.shape(key).len() - 2);
    // Factors: batch dims first, then the positions of queries and keys, then the features that are
    // summed or kept. Keys and values lack the dim of the heads that share them.
    let dims = |n_leading: usize, rest: [usize; 2]| -> Vec<FactorId> {
        (0..n_leading).chain(rest.map(|it| it + n_batch)).map(factor_id).collect()
    };
    let (of_queries, of_keys) = (|rest| dims(n_batch, rest), |rest| dims(n_shared, rest));
    let (left, right) = (of_queries([0, 2]), of_keys([1, 2]));
    let contract = Contract { left, right, result: of_queries([0, 1]) };
    let products = builder.graph.add(contract.into(), &[query, key]);
    // What a function gives is not scaled again.
    let (products, scale) = match &options.score {
        Some(program) => {
            let heads = score::Heads::new(builder, query, key);
            (score::scores(builder, (products, options.scale), program, heads), 1.0)
        }
        None => (products, options.scale),
    };
    let mut weights = weights(builder, (products, scale), options);
    if options.p > 0.0 {
        weights = dropout::dropped(builder, weights, options.p);
    }
    let (left, right) = (of_queries([0, 1]), of_keys([1, 2]));
    let contract = Contract { left, right, result: of_queries([0, 2]) };
    builder.graph.add(contract.into(), &[weights, value])
}

/// Returns the weights of keys, given the products of queries and keys and their factor.
fn weights(builder: &mut Builder, (products, scale): (Value, f64), options: &Options) -> Value {
    let shape = builder.shape(products);
    let bias = options.bias.map(|it| squeezed(builder, it, &shape));
    let is_hidden = is_hidden(builder, products, options, bias.as_ref());
    let mut operands = vec![(products, all_dims(&shape))];
    let mut it = ScalarBuilder::default();
    let product = it.input(0);
    let mut score = it.scale(product, scale);
    if let Some(bias) = bias {
        let added = it.input(next(&operands));
        score = it.add(score, added);
        operands.push(bias);
    }
    let scores = match (&is_hidden, options.seen) {
        (Some(is_hidden), _) => {
            let (is_hidden_key, masked) = (it.input(next(&operands)), it.constant(MASKED));
            let score = it.select(is_hidden_key, masked, score);
            operands.push((*is_hidden, all_dims(&shape)));
            map(builder, shape, &operands, &it.finish(score))
        }
        (None, Seen::All) => map_one(builder, products, &it.finish(score)),
        (None, Seen::Causal | Seen::Window(_)) => {
            let masked = it.constant(MASKED);
            let is_outside = is_not_seen(builder, &mut it, &mut operands, shape, options.seen);
            let score = it.select(is_outside, masked, score);
            map(builder, shape, &operands, &it.finish(score))
        }
    };
    let weights = Shifted::new(builder, scores, shape.len() - 1).softmax(builder);
    let Some(is_hidden) = is_hidden else { return weights };
    // Of a query that sees no key, all scores are equal.
    let mut it = ScalarBuilder::default();
    let (weight, is_hidden_key, zero) = (it.input(0), it.input(1), it.constant(0.0));
    let weight = it.select(is_hidden_key, zero, weight);
    let operands = [weights, is_hidden].map(|it| (it, all_dims(&shape)));
    map(builder, shape, &operands, &it.finish(weight))
}

/// Returns 1 for keys that a query does not see, if it may see none at all.
fn is_hidden(
    builder: &mut Builder,
    scores: Value,
    options: &Options,
    bias: Option<&(Value, Vec<FactorId>)>,
) -> Option<Value> {
    if options.segments.is_none() && bias.is_none() && options.score.is_none() {
        return None;
    }
    let shape = builder.shape(scores);
    let mut operands = Vec::new();
    let mut it = ScalarBuilder::default();
    let (mut hidden, one) = (it.constant(0.0), it.constant(1.0));
    // A function of scores and a bias hide keys by minus infinity.
    let of_function = options.score.as_ref().map(|_| (scores, all_dims(&shape)));
    if let Some(added) = of_function.or_else(|| bias.cloned()) {
        let (number, infinity) = (it.input(0), it.constant(f64::NEG_INFINITY));
        hidden = it.equal(number, infinity);
        operands.push(added);
    }
    if let Some(segments) = options.segments {
        let zero = it.constant(0.0);
        let of = [2, 1].map(|from_end| factor_id(shape.len() - from_end));
        let [of_query, of_key] = [0, 1].map(|at| {
            let register = it.integer(next(&operands));
            let n_rows = builder.shape(segments[at]).len() - 1;
            let dims = (0..n_rows).map(factor_id).chain([of[at]]).collect();
            operands.push((segments[at], dims));
            register
        });
        let is_same = it.equal(of_query, of_key);
        let other = it.select(is_same, zero, one);
        hidden = it.select(hidden, one, other);
    }
    if !matches!(options.seen, Seen::All) {
        let is_outside = is_not_seen(builder, &mut it, &mut operands, shape, options.seen);
        hidden = it.select(is_outside, one, hidden);
    }
    Some(map(builder, shape, &operands, &it.finish(hidden)))
}

/// Adds 1 for keys that are hidden by their position and the query's. Every query sees one.
fn is_not_seen(
    builder: &mut Builder,
    it: &mut ScalarBuilder,
    operands: &mut Vec<(Value, Vec<FactorId>)>,
    shape: Shape,
    seen: Seen,
) -> Register {
    let [query, key] = [shape.len() - 2, shape.len() - 1].map(|dim| {
        let register = it.integer(next(operands));
        let index = builder.graph.add(Iota::new(shape[dim]).into(), &[]);
        operands.push((index, vec![factor_id(dim)]));
        register
    });
    is_outside(it, query, key, seen.causal_window().1)
}

fn next(operands: &[(Value, Vec<FactorId>)]) -> u8 {
    factor_id(operands.len())
}

/// Returns a bias without the dims along which it is repeated, and the dims that it has.
fn squeezed(builder: &mut Builder, bias: Value, scores: &Shape) -> (Value, Vec<FactorId>) {
    let shape = builder.shape(bias);
    let own: Vec<FactorId> = all_dims(scores)
        .into_iter()
        .filter(|it| shape[*it as usize] == scores[*it as usize])
        .collect();
    let shape = own.iter().map(|it| scores[*it as usize]).collect();
    (builder.graph.add(Reshape { shape }.into(), &[bias]), own)
}
