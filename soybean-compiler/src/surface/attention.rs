//! Attention, from products and a softmax or, where scores are many, as one kernel.

mod composed;
mod options;
pub(crate) mod score;

use soybean_plan::{AttentionForm, MAX_RANK, ScoreFunction, Shape};

use self::{options::Options, score::Heads};
use super::{Arguments, Row, SampleArgument, layout::too_many_dims};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{attend::Attend, iota::Iota, reshape::Reshape},
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
    Row {
        name: "attention_with",
        doc: "`scaled_dot_product_attention` with options. `mask` is `\"none\"`, `\"causal\"` or the number of keys of a sliding window. `segments` are `..`, the lengths of rows of keys, or the segments of queries and keys. `bias` of the scores is a number or `[.., n, m]`, and `scale` their factor. Weights are dropped with the probability `p`. A query that sees no key gives zeros.",
        arguments: &["query", "key", "value", "mask", "segments", "bias", "scale", "p"],
        build: attention_with,
        samples: options::SAMPLES,
    },
    Row {
        name: "flex_attention",
        doc: "`attention_with` whose scores are a function of the score, the head and the positions: `|score, head, query, key| score - (query - key).to_f32()`. It computes with elements and constants. A score of minus infinity hides the key.",
        arguments: &["query", "key", "value", "mask", "segments", "score"],
        build: flex_attention,
        samples: score::SAMPLES,
    },
];

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

impl Seen {
    /// Returns whether later keys are hidden, and the number of keys of a window.
    const fn causal_window(self) -> (bool, Option<usize>) {
        match self {
            Self::All => (false, None),
            Self::Causal => (true, None),
            Self::Window(window) => (true, Some(window)),
        }
    }
}

// Source: Vaswani et al. 2017.
fn attention(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let operands = operands(builder, arguments)?;
    let seen = if arguments.boolean(3)? { Seen::Causal } else { Seen::All };
    let options = Options::plain(builder, operands, seen);
    Ok(Argument::Tensor(attended(builder, operands, &options)))
}

fn attention_with(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let operands = operands(builder, arguments)?;
    let options = Options::read(builder, arguments, operands)?;
    Ok(Argument::Tensor(attended(builder, operands, &options)))
}

// Source: Dong, Feng, Guessous, Liang & He, "Flex Attention", 2024.
fn flex_attention(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let operands = operands(builder, arguments)?;
    let options = Options::with_score(builder, arguments, operands)?;
    Ok(Argument::Tensor(attended(builder, operands, &options)))
}

// Sources: Beltagy, Peters & Cohan 2020; Jiang et al., "Mistral 7B", 2023.
fn sliding_window(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let operands = operands(builder, arguments)?;
    let seen = window(builder, arguments, operands)?;
    let options = Options::plain(builder, operands, seen);
    Ok(Argument::Tensor(attended(builder, operands, &options)))
}

/// Reads the number of keys of a window, which is the fourth argument.
fn window(
    builder: &Builder,
    arguments: &Arguments<'_>,
    [query, key, _]: [Value; 3],
) -> Result<Seen, CallDiagnostic> {
    let window = arguments.size(3, 1)?;
    let [n, m] = [query, key].map(|it| {
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
    Ok(if window < n { Seen::Window(window) } else { Seen::Causal })
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

// softmax(scale * query key^T + bias) value
fn attended(builder: &mut Builder, [query, key, value]: [Value; 3], options: &Options) -> Value {
    let shapes = [query, key, value].map(|it| builder.shape(it));
    let grouped = grouped(&shapes);
    let query = match grouped {
        Some(shape) => builder.graph.add(Reshape { shape }.into(), &[query]),
        None => query,
    };
    let [n, d] = shapes[0][shapes[0].len() - 2..] else { unreachable!("they were checked") };
    let [m, e] = shapes[2][shapes[2].len() - 2..] else { unreachable!("they were checked") };
    let operands = [query, key, value];
    let attended = if n * m >= LEAST_FUSED_SCORES && options.p == 0.0 {
        let (is_causal, window) = options.seen.causal_window();
        let attend = Attend {
            form: AttentionForm::Forward,
            queries: n,
            keys: m,
            features: d,
            width: e,
            is_causal,
            window,
            scale: options.scale,
            has_segments: options.segments.is_some(),
            score: None,
            has_bias: options.bias.is_some(),
            reads_halo: false,
        };
        fused(builder, operands, attend, options)
    } else {
        composed::attention(builder, operands, options)
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
fn fused(
    builder: &mut Builder,
    operands: [Value; 3],
    mut attend: Attend,
    options: &Options,
) -> Value {
    let [query, key, _] = operands;
    let segments = options.segments.into_iter().flatten();
    let mut operands: Vec<Value> = operands.into_iter().chain(segments).collect();
    operands.extend(options.bias);
    if let Some(score) = &options.score {
        let heads = Heads::new(builder, query, key);
        let score = score::in_kernel(score, attend.queries, heads.is_some());
        let reads_head = score.reads_integers(ScoreFunction::HEAD.into());
        operands.extend(heads.filter(|_| reads_head).map(|it| it.value));
        attend.score = Some(score);
    }
    let n_heads = |it: Value| builder.shape(it).iter().rev().skip(2).product::<usize>();
    attend.reads_halo = attend.has_short_window(n_heads(query) / n_heads(key).max(1));
    if attend.has_positions() {
        operands.push(builder.graph.add(Iota::new(attend.queries).into(), &[]));
    }
    builder.graph.add(attend.into(), &operands)
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
