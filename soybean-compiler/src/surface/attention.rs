//! Attention, from products and a softmax or, where scores are many, as one kernel.

use soybean_plan::{AttentionForm, MAX_RANK, Shape};

use super::{Arguments, Row, SampleArgument, layout::too_many_dims, map, reduction::Shifted};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{
        attend::Attend, contract::Contract, elementwise::all_dims, iota::Iota, reshape::Reshape,
    },
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

pub(super) const TABLE: &[Row] = &[Row {
    name: "scaled_dot_product_attention",
    doc: "`softmax(query key^T / sqrt(d)) value` for `[.., n, d]`, `[.., m, d]` and `[.., m, e]`. Of `h` heads of queries `[.., h, n, d]`, each `h / g` in turn share one of `g` heads of keys and values.",
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
        &[
            tensor(&[2, 4, 3, 5]),
            tensor(&[2, 2, 3, 5]),
            tensor(&[2, 2, 3, 2]),
            SampleArgument::Boolean(true),
        ],
        &[
            tensor(&[6, 2, 3]),
            tensor(&[1, 4, 3]),
            tensor(&[1, 4, 3]),
            SampleArgument::Boolean(false),
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
    let grouped = grouped(&shapes);
    let query = match grouped {
        Some(shape) => builder.graph.add(Reshape { shape }.into(), &[query]),
        None => query,
    };
    let [n, d] = shapes[0][shapes[0].len() - 2..] else { unreachable!("checked above") };
    let [m, e] = shapes[2][shapes[2].len() - 2..] else { unreachable!("checked above") };
    let scale = 1.0 / (d as f64).sqrt();
    let operands = [query, key, value];
    let attended = if n * m >= LEAST_FUSED_SCORES {
        let form = AttentionForm::Forward;
        let (queries, keys, features, width) = (n, m, d, e);
        fused(builder, operands, Attend { form, queries, keys, features, width, is_causal, scale })
    } else {
        composed(builder, operands, |builder, products| match is_causal {
            true => causal_scores(builder, products, scale),
            false => plain_scores(builder, products, scale),
        })
    };
    let Some(_) = grouped else { return Ok(Argument::Tensor(attended)) };
    let extents = shapes[0].iter().copied().take(shapes[0].len() - 1).chain([e]);
    let shape = extents.collect();
    Ok(Argument::Tensor(builder.graph.add(Reshape { shape }.into(), &[attended])))
}

/// Returns the shape `[.., g, h / g, n, d]` of queries of which several heads share keys.
fn grouped([query, key, _]: &[Shape; 3]) -> Option<Shape> {
    let n_outer = query.len().checked_sub(3)?;
    let (h, g) = (query[n_outer], key[n_outer]);
    let extents = || query[..n_outer].iter().copied().chain([g, h / g]);
    (h != g).then(|| extents().chain(query[n_outer + 1..].iter().copied()).collect())
}

/// Builds attention as one kernel.
fn fused(builder: &mut Builder, operands: [Value; 3], attend: Attend) -> Value {
    let mut operands = operands.to_vec();
    if attend.is_causal {
        operands.push(builder.graph.add(Iota::new(attend.queries).into(), &[]));
    }
    builder.graph.add(attend.into(), &operands)
}

/// Builds attention with its matrix of scores, which come from the products of queries and keys.
fn composed(
    builder: &mut Builder,
    [query, key, value]: [Value; 3],
    scores: impl FnOnce(&mut Builder, Value) -> Value,
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
    let scores = scores(builder, products);
    let weights = Shifted::new(builder, scores, n_batch + 1).softmax(builder);
    let (left, right) = (of_queries([0, 1]), of_keys([1, 2]));
    let contract = Contract { left, right, result: of_queries([0, 2]) };
    builder.graph.add(contract.into(), &[weights, value])
}

fn check(arguments: &Arguments<'_>, shapes: &[Shape; 3]) -> Result<(), CallDiagnostic> {
    const FORM: &str =
        "query [.., h, n, d], key [.., g, m, d], value [.., g, m, e], where g divides h";
    let [query, key, value] = shapes;
    for (position, shape) in shapes.iter().enumerate() {
        if shape.len() < 2 {
            let message = format!("takes tensors of at least 2 dims, found {shape}");
            return Err(arguments.fault(position, message).with_help(FORM));
        }
    }
    let leading = |shape: &Shape| shape[..shape.len() - 2].to_vec();
    let [left, right, of_values] = [query, key, value].map(leading);
    let outer = |leading: &[usize]| leading[..leading.len().saturating_sub(1)].to_vec();
    if left.len() != right.len() || outer(&left) != outer(&right) {
        let message = format!("leading dims differ: {left:?} vs {right:?}");
        return Err(arguments.fault(1, message).with_help(FORM));
    }
    if let (Some(&h), Some(&g)) = (left.last(), right.last()) {
        if h != g && (g == 0 || !h.is_multiple_of(g)) {
            let message = format!("{h} heads of queries cannot share {g} heads of keys");
            return Err(arguments.fault(1, message).with_help(FORM));
        }
        if h != g && query.len() == MAX_RANK {
            return Err(too_many_dims(arguments, 0, MAX_RANK + 1));
        }
    }
    if right != of_values {
        let message = format!("leading dims of keys and values differ: {right:?} vs {of_values:?}");
        return Err(arguments.fault(2, message).with_help(FORM));
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
