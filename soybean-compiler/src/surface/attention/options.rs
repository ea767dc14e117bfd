//! The options of attention: which keys queries see, and how scores become weights.

use soybean_plan::{DType, Mode, NumberRange, ScalarProgram, Shape};

use super::{Seen, grouped, score, window};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{
        attend::bias::is_in_turn,
        elementwise::{Elementwise, all_dims},
        iota::Iota,
        reshape::Reshape,
    },
    scalar::ScalarBuilder,
    signature::factor_id,
    surface::{Arguments, SampleArgument, broadcast::Operand, labels, map},
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const fn integers(shape: &'static [usize], n: usize) -> SampleArgument {
    SampleArgument::Labels { shape, n_classes: n }
}

const ALL: SampleArgument = SampleArgument::All;
const NONE: SampleArgument = SampleArgument::Text("none");
const CAUSAL: SampleArgument = SampleArgument::Text("causal");

const fn number(value: f64) -> SampleArgument {
    SampleArgument::Float(value)
}

pub(super) const SAMPLES: &[&[SampleArgument]] = &[
    &[
        tensor(&[4, 2, 4, 6]),
        tensor(&[4, 2, 4, 6]),
        tensor(&[4, 2, 4, 3]),
        NONE,
        integers(&[4], 5),
        number(0.0),
        number(0.4),
        number(0.0),
    ],
    &[
        tensor(&[2, 4, 5, 3]),
        tensor(&[2, 2, 5, 3]),
        tensor(&[2, 2, 5, 2]),
        CAUSAL,
        SampleArgument::Array(&[integers(&[2, 5], 2), integers(&[2, 5], 2)]),
        tensor(&[4, 5, 5]),
        number(-0.5),
        number(0.0),
    ],
    &[
        tensor(&[3, 4, 2]),
        tensor(&[3, 6, 2]),
        tensor(&[3, 6, 2]),
        SampleArgument::Integer(2),
        ALL,
        tensor(&[4, 6]),
        number(1.0),
        number(0.3),
    ],
    // In one kernel.
    &[
        tensor(&[2, 32, 1]),
        tensor(&[2, 32, 1]),
        tensor(&[2, 32, 1]),
        CAUSAL,
        SampleArgument::Array(&[integers(&[2, 32], 3), integers(&[2, 32], 3)]),
        tensor(&[2, 1, 32]),
        number(0.7),
        number(0.0),
    ],
    &[
        tensor(&[2, 2, 32, 1]),
        tensor(&[2, 1, 32, 1]),
        tensor(&[2, 1, 32, 1]),
        NONE,
        integers(&[2], 33),
        tensor(&[1, 32]),
        number(0.7),
        number(0.0),
    ],
];

/// The options of a call.
pub(super) struct Options {
    pub(super) seen: Seen,
    /// The segments of queries `[.., n]` and of keys `[.., m]`.
    pub(super) segments: Option<[Value; 2]>,
    /// `[.., n, m]` with the leading dims of grouped queries, or 1 instead of any dim but the last.
    pub(super) bias: Option<Value>,
    /// The score, from the scaled product; the product itself if `None`.
    pub(super) score: Option<ScalarProgram>,
    /// The factor of the products.
    pub(super) scale: f64,
    /// The probability with which a weight is dropped in training.
    pub(super) p: f64,
}

impl Options {
    /// Returns the options of attention without segments and bias, scaled by `1 / sqrt(d)`.
    pub(super) fn plain(builder: &Builder, [query, ..]: [Value; 3], seen: Seen) -> Self {
        let width = builder.shape(query).last().copied().unwrap_or(1);
        let scale = 1.0 / (width as f64).sqrt();
        Self { seen, segments: None, bias: None, score: None, scale, p: 0.0 }
    }

    /// Reads the arguments after queries, keys and values.
    pub(super) fn read(
        builder: &mut Builder,
        arguments: &Arguments<'_>,
        operands: [Value; 3],
    ) -> Result<Self, CallDiagnostic> {
        let seen = seen(builder, arguments, operands)?;
        let scale = arguments.number_in(6, NumberRange::FINITE)?;
        let p = arguments.number_in(7, NumberRange::BELOW_ONE)?;
        let shapes = operands.map(|it| builder.shape(it));
        let bias = bias(builder, arguments, &shapes)?;
        let segments = segments(builder, arguments, &shapes)?;
        // Inference drops nothing, so that its weights need not be in memory.
        let p = if builder.mode() == Mode::Inference { 0.0 } else { p };
        Ok(Self { seen, segments, bias, score: None, scale, p })
    }

    /// Reads mask, segments and a function of scores after queries, keys and values.
    pub(super) fn with_score(
        builder: &mut Builder,
        arguments: &Arguments<'_>,
        operands: [Value; 3],
    ) -> Result<Self, CallDiagnostic> {
        let seen = seen(builder, arguments, operands)?;
        let shapes = operands.map(|it| builder.shape(it));
        let score = Some(score::score(builder, arguments, 5)?);
        let segments = segments(builder, arguments, &shapes)?;
        Ok(Self { segments, score, ..Self::plain(builder, operands, seen) })
    }
}

fn seen(
    builder: &Builder,
    arguments: &Arguments<'_>,
    operands: [Value; 3],
) -> Result<Seen, CallDiagnostic> {
    const WANTED: &str = "`\"none\"`, `\"causal\"` or the number of keys of a window";
    match arguments.get(3) {
        Argument::Text(text) => match &text[..] {
            "none" => Ok(Seen::All),
            "causal" => Ok(Seen::Causal),
            other => Err(arguments.expected_number(3, WANTED, format!("{other:?}"))),
        },
        Argument::Integer(_) => window(builder, arguments, operands),
        _ => Err(arguments.expected(3, WANTED)),
    }
}

/// Returns the segments of queries and keys. Of lengths, the first keys have the segment 1 of all
/// queries, and those of the padding have 0.
fn segments(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    [query, key, _]: &[Shape; 3],
) -> Result<Option<[Value; 2]>, CallDiagnostic> {
    let (n, m) = (query[query.len() - 2], key[key.len() - 2]);
    // The leading dims that queries and keys have in common.
    let leading = query.iter().zip(&key[..key.len() - 2]).take_while(|(n, m)| n == m).count();
    match arguments.get(4) {
        Argument::All => Ok(None),
        Argument::Tensor(_) => {
            let lengths = labels::integers(builder, arguments, 4, "lengths")?;
            let rows = builder.shape(lengths);
            if rows.len() > leading || rows[..] != query[..rows.len()] {
                let message = format!(
                    "the lengths must be {:?}, or have fewer of these dims, found {rows}",
                    &query[..leading]
                );
                return Err(arguments.fault(4, message));
            }
            Ok(Some(of_lengths(builder, lengths, [n, m])))
        }
        Argument::List(items) => {
            let &[Argument::Tensor(of_queries), Argument::Tensor(of_keys)] = &items[..] else {
                return Err(arguments.expected(4, "the segments of queries and of keys"));
            };
            for (value, n) in [(of_queries, n), (of_keys, m)] {
                let shape = builder.shape(value);
                if builder.dtype(value) != DType::I32 {
                    return Err(arguments.fault(4, "the segments must be i32, found f32"));
                }
                let n_rows = shape.len().saturating_sub(1);
                let is_of_rows = n_rows <= leading && shape.get(..n_rows) == query.get(..n_rows);
                if shape.last() != Some(&n) || !is_of_rows {
                    let wanted = [&query[..leading], &[n]].concat();
                    let message = format!(
                        "the segments must be {wanted:?}, or have fewer of the first dims, found {shape}"
                    );
                    return Err(arguments.fault(4, message));
                }
            }
            if builder.shape(of_queries).len() != builder.shape(of_keys).len() {
                let message = "the segments of queries and keys must have as many dims";
                return Err(arguments.fault(4, message));
            }
            Ok(Some([of_queries, of_keys]))
        }
        _ => Err(arguments.expected(4, "`..`, lengths of keys, or segments of queries and keys")),
    }
}

fn of_lengths(builder: &mut Builder, lengths: Value, [n, m]: [usize; 2]) -> [Value; 2] {
    let rows = builder.shape(lengths);
    let key = builder.graph.add(Iota::new(m).into(), &[]);
    let shape: Shape = rows.iter().copied().chain([m]).collect();
    let mut it = ScalarBuilder::default();
    let (length, position) = (it.integer(0), it.integer(1));
    let is_inside = it.greater(length, position);
    let operands = vec![all_dims(&rows), vec![factor_id(rows.len())]];
    let program = it.finish(is_inside);
    let of_keys = Elementwise { extents: shape, operands, program, dtype: DType::I32 };
    let of_keys = builder.graph.add(of_keys.into(), &[lengths, key]);
    let mut it = ScalarBuilder::default();
    let one = it.constant(1.0);
    let of_queries = Elementwise {
        extents: rows.iter().copied().chain([n]).collect(),
        operands: Vec::new(),
        program: it.finish(one),
        dtype: DType::I32,
    };
    [builder.graph.add(of_queries.into(), &[]), of_keys]
}

/// Returns the bias with all dims of grouped scores.
fn bias(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    shapes: &[Shape; 3],
) -> Result<Option<Value>, CallDiagnostic> {
    // A number is added to all scores, so that weights do not depend on it.
    let Operand::Tensor(bias) = arguments.operand(builder, 5)? else { return Ok(None) };
    let [query, key, _] = shapes;
    let rank = query.len();
    let scores: Vec<usize> = [&query[..rank - 1], &[key[rank - 2]]].concat();
    let given = builder.shape(bias);
    let n_missing = rank.checked_sub(given.len());
    let fits = |missing: usize| {
        let is_one = |dim: usize, extent: usize| extent == 1 && dim + 1 < rank;
        (missing..rank).all(|dim| {
            let extent = given[dim - missing];
            extent == scores[dim] || is_one(dim, extent)
        })
    };
    let Some(n_missing) = n_missing.filter(|it| !given.is_empty() && fits(*it)) else {
        let message = format!("the bias must be {scores:?}, found {given}");
        let help = "first dims may be missing, and all but the last may be 1";
        return Err(arguments.fault(5, message).with_help(help));
    };
    let mut extents: Vec<usize> = vec![1; n_missing];
    extents.extend(given.iter());
    let Some(grouped) = grouped(shapes) else {
        return Ok(Some(in_turn(builder, bias, extents, &scores)));
    };
    let at = rank - 3;
    let heads = if extents[at] == 1 { [1, 1] } else { [grouped[at], grouped[at + 1]] };
    let extents = [&extents[..at], &heads[..], &extents[at + 1..]].concat();
    let scores = [&grouped[..=rank - 1], &[key[rank - 2]]].concat();
    Ok(Some(in_turn(builder, bias, extents, &scores)))
}

/// Returns a bias in this shape. If heads do not take its matrices in turn, leading dims are
/// repeated.
fn in_turn(builder: &mut Builder, bias: Value, extents: Vec<usize>, scores: &[usize]) -> Value {
    let shape: Shape = extents.iter().copied().collect();
    let n_leading = extents.len() - 2;
    let reshaped = if builder.shape(bias) == shape {
        bias
    } else {
        builder.graph.add(Reshape { shape }.into(), &[bias])
    };
    if is_in_turn(&extents[..n_leading], &scores[..n_leading]) {
        return reshaped;
    }
    let whole: Shape = scores[..n_leading].iter().chain(&extents[n_leading..]).copied().collect();
    let own: Vec<usize> = (0..whole.len()).filter(|it| extents[*it] == whole[*it]).collect();
    let squeezed = own.iter().map(|it| whole[*it]).collect();
    let squeezed = builder.graph.add(Reshape { shape: squeezed }.into(), &[bias]);
    let mut it = ScalarBuilder::default();
    let x = it.input(0);
    let dims = own.into_iter().map(factor_id).collect();
    map(builder, whole, &[(squeezed, dims)], &it.finish(x))
}
