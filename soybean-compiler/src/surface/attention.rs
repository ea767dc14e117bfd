//! Attention, from products and a softmax or, where scores are many, as one kernel.

use soybean_plan::{AttentionForm, MAX_RANK, Register, Shape, Unary};

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

const fn boolean(value: bool) -> SampleArgument {
    SampleArgument::Boolean(value)
}

const fn integer(value: i64) -> SampleArgument {
    SampleArgument::Integer(value)
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "scaled_dot_product_attention",
        doc: "`softmax(query key^T / sqrt(d)) value` for `[.., n, d]`, `[.., m, d]` and `[.., m, e]`. Of `h` heads of queries `[.., h, n, d]`, each `h / g` in turn share one of `g` heads of keys and values.",
        arguments: &["query", "key", "value", "is_causal"],
        build: attention,
        samples: &[
            &[tensor(&[2, 2, 4, 6]), tensor(&[2, 2, 4, 6]), tensor(&[2, 2, 4, 6]), boolean(true)],
            &[tensor(&[3, 5]), tensor(&[7, 5]), tensor(&[7, 2]), boolean(false)],
            &[tensor(&[1, 5, 3]), tensor(&[1, 3, 3]), tensor(&[1, 3, 1]), boolean(true)],
            &[tensor(&[2, 4, 3, 5]), tensor(&[2, 2, 3, 5]), tensor(&[2, 2, 3, 2]), boolean(true)],
            &[tensor(&[6, 2, 3]), tensor(&[1, 4, 3]), tensor(&[1, 4, 3]), boolean(false)],
        ],
    },
    Row {
        name: "sliding_window_attention",
        doc: "`scaled_dot_product_attention` in which each query sees `window` keys: those of its own position and of the positions just before it.",
        arguments: &["query", "key", "value", "window"],
        build: sliding_window,
        samples: &[
            &[tensor(&[2, 2, 6, 4]), tensor(&[2, 2, 6, 4]), tensor(&[2, 2, 6, 4]), integer(3)],
            &[tensor(&[4, 4, 3]), tensor(&[2, 6, 3]), tensor(&[2, 6, 2]), integer(2)],
            &[tensor(&[3, 2]), tensor(&[3, 2]), tensor(&[3, 1]), integer(1)],
        ],
    },
];

/// The value of a masked score. Its exponential is 0 beside any other, and unlike an infinity it is
/// a number in every difference.
const MASKED: f64 = -1e30;

/// From this many scores of a head on, one kernel that never stores all scores is faster than
/// products and a softmax.
const LEAST_FUSED_SCORES: usize = 32 * 32;

/// The keys that queries see.
#[derive(Clone, Copy)]
enum Seen {
    All,
    /// Those up to the query's own position.
    Causal,
    /// The last of those, these many.
    Window(usize),
}

// Source: Vaswani et al. 2017.
fn attention(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let operands = operands(builder, arguments)?;
    let seen = if arguments.boolean(3)? { Seen::Causal } else { Seen::All };
    Ok(Argument::Tensor(attended(builder, operands, seen)))
}

// Sources: Beltagy, Peters & Cohan 2020; Jiang et al., "Mistral 7B", 2023.
fn sliding_window(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let operands = operands(builder, arguments)?;
    let window = arguments.size(3, 1)?;
    let [n, m] = [operands[0], operands[1]].map(|it| {
        let shape = builder.shape(it);
        shape[shape.len() - 2]
    });
    if n > m {
        let message = format!("there are {n} queries, but only {m} keys");
        return Err(arguments
            .fault(1, message)
            .with_help("each query sees the key of its position"));
    }
    // A window of all positions hides nothing.
    let seen = if window < n { Seen::Window(window) } else { Seen::Causal };
    Ok(Argument::Tensor(attended(builder, operands, seen)))
}

/// Returns queries, keys and values.
fn operands(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<[Value; 3], CallDiagnostic> {
    let mut operands = [arguments.tensor(builder, 0)?; 3];
    operands[1] = arguments.tensor(builder, 1)?;
    operands[2] = arguments.tensor(builder, 2)?;
    check(arguments, &operands.map(|it| builder.shape(it)))?;
    Ok(operands)
}

// softmax(query key^T / sqrt(d)) value
fn attended(builder: &mut Builder, [query, key, value]: [Value; 3], seen: Seen) -> Value {
    let shapes = [query, key, value].map(|it| builder.shape(it));
    let grouped = grouped(&shapes);
    let query = match grouped {
        Some(shape) => builder.graph.add(Reshape { shape }.into(), &[query]),
        None => query,
    };
    let [n, d] = shapes[0][shapes[0].len() - 2..] else { unreachable!("they were checked") };
    let [m, e] = shapes[2][shapes[2].len() - 2..] else { unreachable!("they were checked") };
    let scale = 1.0 / (d as f64).sqrt();
    let operands = [query, key, value];
    let attended = if n * m >= LEAST_FUSED_SCORES {
        let (is_causal, window) = match seen {
            Seen::All => (false, None),
            Seen::Causal => (true, None),
            Seen::Window(window) => (true, Some(window)),
        };
        let form = AttentionForm::Forward;
        let (queries, keys, features, width) = (n, m, d, e);
        let attend = Attend { form, queries, keys, features, width, is_causal, window, scale };
        fused(builder, operands, attend)
    } else {
        composed(builder, operands, |builder, products| match seen {
            Seen::All => plain_scores(builder, products, scale),
            Seen::Causal => causal_scores(builder, products, scale),
            Seen::Window(window) => window_scores(builder, products, scale, window),
        })
    };
    let Some(_) = grouped else { return attended };
    let extents = shapes[0].iter().copied().take(shapes[0].len() - 1).chain([e]);
    let shape = extents.collect();
    builder.graph.add(Reshape { shape }.into(), &[attended])
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
    masked_scores(builder, products, scale, |it, query, key| it.greater(key, query))
}

/// Scores of the keys of a window, which ends at the query's own position.
fn window_scores(builder: &mut Builder, products: Value, scale: f64, window: usize) -> Value {
    masked_scores(builder, products, scale, |it, query, key| {
        let is_later = it.greater(key, query);
        let (query, key) = (it.unary(Unary::Float, query), it.unary(Unary::Float, key));
        let (distance, last) = (it.sub(query, key), it.constant(window as f64 - 1.0));
        let is_too_early = it.greater(distance, last);
        let one = it.constant(1.0);
        it.select(is_later, one, is_too_early)
    })
}

/// Scores of the keys that are not hidden, by the positions of a query and a key.
fn masked_scores(
    builder: &mut Builder,
    products: Value,
    scale: f64,
    is_hidden: impl FnOnce(&mut ScalarBuilder, Register, Register) -> Register,
) -> Value {
    let shape = builder.shape(products);
    let mut it = ScalarBuilder::default();
    let (product, query, key) = (it.input(0), it.integer(1), it.integer(2));
    let (score, masked) = (it.scale(product, scale), it.constant(MASKED));
    let is_hidden = is_hidden(&mut it, query, key);
    let result = it.select(is_hidden, masked, score);
    let mut index =
        |dim: usize| (builder.graph.add(Iota::new(shape[dim]).into(), &[]), vec![factor_id(dim)]);
    let (queries, keys) = (index(shape.len() - 2), index(shape.len() - 1));
    map(builder, shape, &[(products, all_dims(&shape)), queries, keys], &it.finish(result))
}
