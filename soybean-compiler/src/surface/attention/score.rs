//! Functions of scores: how users write them, and what they read in one kernel or in a map.

use soybean_plan::{Binary, DType, ScalarProgram, ScoreFunction};

use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::{
        attend::score::{ScoreInput, inputs, program},
        elementwise::{Elementwise, all_dims},
        iota::Iota,
    },
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
    surface::{Arguments, Row, SampleArgument, map, sample::SampleFunction},
    value::Value,
};

/// The name of the call that gives what a function of scores reads.
pub const SCORE_INPUTS: &str = "score_inputs";

/// The calls that a function of scores begins with.
pub(in crate::surface) const TABLE: &[Row] = &[Row {
    name: SCORE_INPUTS,
    doc: "The score, the head, the position of the query and that of the key, as scalars.",
    arguments: &[],
    build: score_inputs,
    samples: &[],
}];

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const fn function(function: SampleFunction) -> SampleArgument {
    SampleArgument::Function(function)
}

pub(super) const SAMPLES: &[&[SampleArgument]] = &[
    &[
        tensor(&[2, 4, 5, 3]),
        tensor(&[2, 2, 5, 3]),
        tensor(&[2, 2, 5, 2]),
        SampleArgument::Text("causal"),
        SampleArgument::All,
        function(SampleFunction::LinearBias),
    ],
    &[
        tensor(&[4, 6]),
        tensor(&[7, 6]),
        tensor(&[7, 2]),
        SampleArgument::Text("none"),
        SampleArgument::All,
        function(SampleFunction::SoftCap),
    ],
    // In one kernel.
    &[
        tensor(&[2, 4, 32, 1]),
        tensor(&[2, 2, 32, 1]),
        tensor(&[2, 2, 32, 1]),
        SampleArgument::Integer(20),
        SampleArgument::Labels { shape: &[2], n_classes: 33 },
        function(SampleFunction::LinearBias),
    ],
    &[
        tensor(&[3, 32, 1]),
        tensor(&[3, 32, 1]),
        tensor(&[3, 32, 1]),
        SampleArgument::Text("none"),
        SampleArgument::All,
        function(SampleFunction::SoftCap),
    ],
];

fn score_inputs(
    builder: &mut Builder,
    _arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let numbers = [0, ScoreFunction::HEAD, ScoreFunction::QUERY, ScoreFunction::KEY];
    let input = |number| Argument::Tensor(builder.graph.add(ScoreInput { number }.into(), &[]));
    Ok(Argument::List(numbers.map(input).to_vec()))
}

/// Reads a function of scores: a scalar that is computed from the results of [`SCORE_INPUTS`].
pub(super) fn score(
    builder: &Builder,
    arguments: &Arguments<'_>,
    position: usize,
) -> Result<ScalarProgram, CallDiagnostic> {
    let &Argument::Tensor(result) = arguments.get(position) else {
        return Err(arguments.expected(position, "a function that returns a score"));
    };
    let shape = builder.shape(result);
    if !shape.is_empty() {
        let message = format!("the function of scores must return one number, found {shape}");
        return Err(arguments.fault(position, message).with_help(INPUTS));
    }
    if builder.dtype(result) == DType::I32 {
        let message = "the function of scores must return f32, found i32";
        return Err(arguments
            .fault(position, message)
            .with_help("`.to_f32()` makes numbers of integers"));
    }
    program(&builder.graph, result).ok_or_else(|| {
        let message = "the function of scores computes with more than its arguments and constants";
        arguments.fault(position, message).with_help(INPUTS)
    })
}

const INPUTS: &str = "it may compute with the score, the head, the positions and constants, by functions of elements; `attention_with` adds tensors to scores";

/// The numbers of the heads of queries, with the dims of the queries that they follow.
pub(super) struct Heads {
    pub(super) value: Value,
    pub(super) dims: Vec<FactorId>,
}

impl Heads {
    /// Adds the numbers of heads of queries `[.., h, n, d]` and keys `[.., h, m, d]`, or of grouped
    /// ones, `[.., g, h / g, n, d]` and `[.., g, m, d]`; `None` if there is no dim of heads.
    pub(super) fn new(builder: &mut Builder, query: Value, key: Value) -> Option<Self> {
        let (query, key) = (builder.shape(query), builder.shape(key));
        let last = query.len().checked_sub(3)?;
        if query.len() == key.len() {
            let value = builder.graph.add(Iota::new(query[last]).into(), &[]);
            return Some(Self { value, dims: vec![factor_id(last)] });
        }
        let extents = [query[last - 1], query[last]];
        let indices = extents.map(|it| builder.graph.add(Iota::new(it).into(), &[]));
        let mut it = ScalarBuilder::default();
        let (group, member) = (it.integer(0), it.integer(1));
        let size = i32::try_from(extents[1]).expect("extents are in bounds");
        let size = it.integer_constant(size);
        let first = it.binary(Binary::MultiplyIntegers, group, size);
        let head = it.binary(Binary::AddIntegers, first, member);
        let numbers = Elementwise {
            extents: extents.into_iter().collect(),
            operands: vec![vec![0], vec![1]],
            program: it.finish(head),
            dtype: DType::I32,
        };
        let value = builder.graph.add(numbers.into(), &indices);
        Some(Self { value, dims: vec![factor_id(last - 1), factor_id(last)] })
    }
}

/// Adds the scores that a program computes from products `[.., n, m]` with this factor.
pub(super) fn scores(
    builder: &mut Builder,
    (products, scale): (Value, f64),
    score: &ScalarProgram,
    heads: Option<Heads>,
) -> Value {
    let shape = builder.shape(products);
    let mut it = ScalarBuilder::default();
    let mut inputs = inputs(&mut it);
    inputs[0] = it.scale(inputs[0], scale);
    let mut operands = vec![(products, all_dims(&shape))];
    for dim in [shape.len() - 2, shape.len() - 1] {
        let positions = builder.graph.add(Iota::new(shape[dim]).into(), &[]);
        operands.push((positions, vec![factor_id(dim)]));
    }
    match heads {
        Some(Heads { value, dims }) => operands.push((value, dims)),
        None => inputs[usize::from(ScoreFunction::HEAD)] = it.integer_constant(0),
    }
    let score = it.append(score, &inputs)[0];
    map(builder, shape, &operands, &it.finish(score))
}

/// Returns the function for one kernel. The position of a query of padding is that of the last one,
/// so that its score is a number. Without heads, their number is 0.
pub(super) fn in_kernel(score: &ScalarProgram, queries: usize, has_heads: bool) -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let mut inputs = inputs(&mut it);
    let last = i32::try_from(queries.saturating_sub(1)).expect("extents are in bounds");
    let (query, last) = (inputs[usize::from(ScoreFunction::QUERY)], it.integer_constant(last));
    let is_after = it.greater(query, last);
    inputs[usize::from(ScoreFunction::QUERY)] = it.select(is_after, last, query);
    if !has_heads {
        inputs[usize::from(ScoreFunction::HEAD)] = it.integer_constant(0);
    }
    let score = it.append(score, &inputs)[0];
    it.finish(score)
}
