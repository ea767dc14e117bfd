//! Attention, from products and a softmax or, where scores are many, as one kernel.

use soybean_plan::{AttentionForm, Shape};

use super::{Arguments, Row, SampleArgument, map, reduction::Shifted};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{attend::Attend, contract::Contract, elementwise::all_dims, iota::Iota},
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

pub(super) const TABLE: &[Row] = &[Row {
    name: "scaled_dot_product_attention",
    doc: "`softmax(query key^T / sqrt(d)) value` for `[.., n, d]`, `[.., m, d]` and `[.., m, e]`.",
    arguments: &["query", "key", "value", "is_causal"],
    build: attention,
    samples: &[
        &[
            tensor(&[2, 2, 4, 6]),
            tensor(&[2, 2, 4, 6]),
            tensor(&[2, 2, 4, 6]),
            SampleArgument::Boolean(true),
        ],
        &[tensor(&[3, 5]), tensor(&[7, 5]), tensor(&[7, 2]), SampleArgument::Boolean(false)],
        &[
            tensor(&[1, 5, 3]),
            tensor(&[1, 3, 3]),
            tensor(&[1, 3, 1]),
            SampleArgument::Boolean(true),
        ],
    ],
}];

/// The value of a masked score. Its exponential is 0 beside any other, and unlike an infinity it is
/// a number in every difference.
const MASKED: f64 = -1e30;

/// From this many scores of a head on, one kernel that never stores all scores is faster than
/// products and a softmax.
const LEAST_FUSED_SCORES: usize = 32 * 32;

// softmax(query key^T / sqrt(d)) value. Source: Vaswani et al. 2017.
fn attention(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let query = arguments.tensor(builder, 0)?;
    let key = arguments.tensor(builder, 1)?;
    let value = arguments.tensor(builder, 2)?;
    let is_causal = arguments.boolean(3)?;
    let shapes = [query, key, value].map(|it| builder.shape(it));
    check(arguments, &shapes)?;
    let [n, d] = shapes[0][shapes[0].len() - 2..] else { unreachable!("checked above") };
    let [m, e] = shapes[2][shapes[2].len() - 2..] else { unreachable!("checked above") };
    let scale = 1.0 / (d as f64).sqrt();
    if n * m >= LEAST_FUSED_SCORES {
        let attend = Attend {
            form: AttentionForm::Forward,
            queries: n,
            keys: m,
            features: d,
            width: e,
            is_causal,
            scale,
        };
        let mut operands = vec![query, key, value];
        if is_causal {
            operands.push(builder.graph.add(Iota::new(n).into(), &[]));
        }
        return Ok(Argument::Tensor(builder.graph.add(attend.into(), &operands)));
    }
    let scores = |builder: &mut Builder, products| match is_causal {
        true => causal_scores(builder, products, scale),
        false => plain_scores(builder, products, scale),
    };
    Ok(Argument::Tensor(composed(builder, [query, key, value], scores)))
}

/// Builds attention with its matrix of scores, which come from the products of queries and keys.
fn composed(
    builder: &mut Builder,
    [query, key, value]: [Value; 3],
    scores: impl FnOnce(&mut Builder, Value) -> Value,
) -> Value {
    let n_batch = builder.shape(query).len() - 2;
    // Factors: batch dims first, then the positions of queries and keys, then the features that are
    // summed or kept.
    let dims = |rest: [usize; 2]| -> Vec<FactorId> {
        (0..n_batch).chain(rest.map(|it| it + n_batch)).map(factor_id).collect()
    };
    let contract = Contract { left: dims([0, 2]), right: dims([1, 2]), result: dims([0, 1]) };
    let products = builder.graph.add(contract.into(), &[query, key]);
    let scores = scores(builder, products);
    let weights = Shifted::new(builder, scores, n_batch + 1).softmax(builder);
    let contract = Contract { left: dims([0, 1]), right: dims([1, 2]), result: dims([0, 2]) };
    builder.graph.add(contract.into(), &[weights, value])
}

fn check(arguments: &Arguments<'_>, shapes: &[Shape; 3]) -> Result<(), CallDiagnostic> {
    const FORM: &str =
        "query [.., n, d], key [.., m, d], value [.., m, e], with equal leading dims";
    let [query, key, value] = shapes;
    for (position, shape) in shapes.iter().enumerate() {
        if shape.len() < 2 {
            let message = format!("takes tensors of at least 2 dims, found {shape}");
            return Err(arguments.fault(position, message).with_help(FORM));
        }
    }
    let leading = |shape: &Shape| shape[..shape.len() - 2].to_vec();
    for (position, shape) in [(1, key), (2, value)] {
        let (left, right) = (leading(query), leading(shape));
        if left != right {
            let message = format!("leading dims differ: {left:?} vs {right:?}");
            return Err(arguments.fault(position, message).with_help(FORM));
        }
    }
    let n = query.len();
    if query[n - 1] != key[n - 1] {
        let message = format!("queries have {} features, but keys {}", query[n - 1], key[n - 1]);
        return Err(arguments.fault(1, message).with_help(FORM));
    }
    if key[n - 2] != value[n - 2] {
        let message = format!("there are {} keys, but {} values", key[n - 2], value[n - 2]);
        return Err(arguments.fault(2, message).with_help(FORM));
    }
    Ok(())
}

fn plain_scores(builder: &mut Builder, products: Value, scale: f64) -> Value {
    let mut it = ScalarBuilder::default();
    let product = it.input(0);
    let score = it.scale(product, scale);
    super::map_one(builder, products, &it.finish(score))
}

/// Scores of keys at or before the query's own position; every query sees the first key.
fn causal_scores(builder: &mut Builder, products: Value, scale: f64) -> Value {
    let shape = builder.shape(products);
    let mut it = ScalarBuilder::default();
    let (product, query, key) = (it.input(0), it.integer(1), it.integer(2));
    let (score, masked) = (it.scale(product, scale), it.constant(MASKED));
    let is_later = it.greater(key, query);
    let result = it.select(is_later, masked, score);
    let mut index =
        |dim: usize| (builder.graph.add(Iota::new(shape[dim]).into(), &[]), vec![factor_id(dim)]);
    let (queries, keys) = (index(shape.len() - 2), index(shape.len() - 1));
    map(builder, shape, &[(products, all_dims(&shape)), queries, keys], &it.finish(result))
}
