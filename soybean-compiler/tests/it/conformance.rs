//! Properties of every operator that users can call. The calls come from the operators' own table.
//!
//! - Its gradient is that of finite differences, in `f64`.
//! - Splitting any factor of a signature and joining the parts changes nothing.
//! - Simplification and fusion change no value.
//! - In `bf16` its loss and gradients are the same but for rounding.

use std::collections::BTreeMap;

use soybean_compiler::{
    Argument, Builder, Network, Optimizer, Sample, Value, fuse, graph::Graph, operator::Operator,
    operator_names, operator_samples, operators::attend::Attend, round, simplify, training_step,
    verify,
};
use soybean_plan::{DType, Init, Precision};

use crate::support::{
    self, call,
    interpreter::{evaluate, evaluate_these},
    samples::{argument, noise},
    split::check_split,
};

/// Operators through which no gradient flows by definition, whatever the values say.
const WITHOUT_GRADIENT: [&str; 1] = ["detach"];
/// Operators that give no tensor.
const WITHOUT_TENSOR: [&str; 1] = ["dim"];

/// A sample as a model, with values for all its sources. Its loss is a weighted sum of the
/// operator's result.
struct Case {
    sample: Sample,
    network: Network,
    sources: BTreeMap<Value, Vec<f64>>,
}

/// Returns the tensor that a call gives, or several as one vector; `None` for other results.
fn joined(builder: &mut Builder, result: Argument) -> Option<Value> {
    let mut tensor = |operator: &str, arguments: &[Argument]| call(builder, operator, arguments);
    match result {
        Argument::Tensor(value) => Some(tensor("to_f32", &[Argument::Tensor(value)])),
        Argument::List(parts) => {
            let mut flat = |part: &Argument| {
                let part = Argument::Tensor(tensor("to_f32", std::slice::from_ref(part)));
                let row = tensor("unsqueeze", &[part, Argument::Integer(0)]);
                let flat = tensor("flatten", &[Argument::Tensor(row)]);
                Argument::Tensor(tensor("squeeze", &[Argument::Tensor(flat), Argument::Integer(0)]))
            };
            let parts = parts.iter().map(&mut flat).collect();
            Some(tensor("concat", &[Argument::List(parts), Argument::Integer(0)]))
        }
        _ => None,
    }
}

fn case(sample: Sample) -> Option<Case> {
    let mut builder = Builder::new();
    let mut sources = BTreeMap::new();
    let arguments: Vec<Argument> =
        sample.arguments.iter().map(|it| argument(&mut builder, &mut sources, it)).collect();
    let result = builder.call(sample.operator, &arguments).unwrap();
    let result = joined(&mut builder, result)?;
    let shape = builder.shape(result);
    let weights = builder.input("weights", DType::F32, &shape);
    let tensors: Vec<Value> = sources.keys().copied().collect();
    sources.insert(weights, (0..shape.n_elements()).map(|it| noise(it + 7777) - 0.4).collect());
    let weighted =
        call(&mut builder, "mul", &[Argument::Tensor(result), Argument::Tensor(weights)]);
    // Every parameter also reaches the loss directly, with weight 0, so that operators without a
    // gradient can be compiled, too.
    let mut loss = call(&mut builder, "sum", &[Argument::Tensor(weighted), Argument::All]);
    for tensor in
        tensors.into_iter().filter(|&it| builder.dtype(it) == DType::F32).collect::<Vec<_>>()
    {
        let nothing = call(&mut builder, "mul", &[Argument::Tensor(tensor), Argument::Float(0.0)]);
        let sum = call(&mut builder, "sum", &[Argument::Tensor(nothing), Argument::All]);
        loss = call(&mut builder, "add", &[Argument::Tensor(loss), Argument::Tensor(sum)]);
    }
    let network = training_step(builder, loss, &[], &Optimizer::default()).unwrap();
    verify(&network).unwrap();
    Some(Case { sample, network, sources })
}

fn cases() -> Vec<Case> {
    operator_samples().into_iter().filter_map(case).collect()
}

#[test]
fn every_operator_has_samples() {
    let samples = operator_samples();
    for name in operator_names() {
        let is_sampled = samples.iter().any(|it| it.operator == name);
        assert!(is_sampled || WITHOUT_TENSOR.contains(&name), "{name} has no samples");
    }
}

fn loss(case: &Case, sources: &BTreeMap<Value, Vec<f64>>) -> f64 {
    let (graph, loss) = (&case.network.graph, case.network.loss().unwrap());
    let up_to_it = graph.values().take_while(|it| *it <= loss);
    evaluate_these(graph, sources, up_to_it)[&loss][0]
}

#[test]
fn gradients_are_those_of_finite_differences() {
    // Central differences in f64: a relative error of about 1e-10, from the third derivative and
    // from rounding alike.
    const STEP: f64 = 1e-5;
    const TOLERANCE: f64 = 1e-7;
    for case in cases() {
        let values = evaluate(&case.network.graph, &case.sources);
        let is_parameter = |it: &Value| case.network.parameters.contains(it);
        for &(parameter, next) in case.network.updates.iter().filter(|it| is_parameter(&it.0)) {
            for (element, (before, after)) in
                values[&parameter].iter().zip(&values[&next]).enumerate()
            {
                // The update is p - rate * gradient.
                let rate = support::interpreter::LEARNING_RATE;
                let gradient = (before - after) / rate;
                let moved = |by: f64| {
                    let mut sources = case.sources.clone();
                    sources.get_mut(&parameter).unwrap()[element] += by;
                    loss(&case, &sources)
                };
                let expected = match WITHOUT_GRADIENT.contains(&case.sample.operator) {
                    true => 0.0,
                    false => (moved(STEP) - moved(-STEP)) / (2.0 * STEP),
                };
                let error = (gradient - expected).abs() / expected.abs().max(1.0);
                assert!(
                    error < TOLERANCE,
                    "{:?}: element {element}: {gradient} instead of {expected}",
                    case.sample
                );
            }
        }
    }
}

#[test]
fn passes_change_no_value() {
    for case in cases() {
        let fused = fuse(&simplify(&case.network), Precision::F32);
        verify(&fused).unwrap();
        let (old, new) = (sources_of(&case.network.graph), sources_of(&fused.graph));
        let sources =
            old.iter().zip(&new).map(|(old, new)| (*new, case.sources[old].clone())).collect();
        let before = evaluate(&case.network.graph, &case.sources);
        let after = evaluate(&fused.graph, &sources);
        for (x, y) in case.network.roots().iter().zip(fused.roots()) {
            for (x, y) in before[x].iter().zip(&after[&y]) {
                assert!(
                    (x - y).abs() <= 1e-12 * x.abs().max(1.0),
                    "{:?}: {y} instead of {x}",
                    case.sample
                );
            }
        }
    }
}

#[test]
fn bf16_changes_values_by_rounding_alone() {
    // A `bf16` number has a relative error of at most 2^-9. A gradient is computed from at most ten
    // such numbers in sequence, and compared with the largest of its tensor, because sums cancel.
    // The loss is a sum of terms of order 1.
    const TOLERANCE: f64 = 2e-2;
    let mut n_rounded = 0;
    for case in cases() {
        let network = round(fuse(&simplify(&case.network), Precision::Bf16), Precision::Bf16);
        verify(&network).unwrap();
        let (old, new) = (sources_of(&case.network.graph), sources_of(&network.graph));
        let sources =
            old.iter().zip(&new).map(|(old, new)| (*new, case.sources[old].clone())).collect();
        let before = evaluate(&case.network.graph, &case.sources);
        let after = evaluate(&network.graph, &sources);
        let is_rounded = |it: Value| network.graph.node(it).dtype == DType::Bf16;
        n_rounded += usize::from(network.graph.values().any(is_rounded));
        let change = |values: &BTreeMap<Value, Vec<f64>>, of: (Value, Value)| -> Vec<f64> {
            values[&of.0].iter().zip(&values[&of.1]).map(|(x, y)| x - y).collect()
        };
        let updates = case.network.updates.iter().zip(&network.updates);
        let updates = updates.map(|(x, y)| (change(&before, *x), change(&after, *y)));
        let updates = updates.map(|(x, y)| (x, y, 1e-3));
        let loss_of = |network: &Network| network.loss().unwrap();
        let losses =
            (before[&loss_of(&case.network)].clone(), after[&loss_of(&network)].clone(), 1.0);
        for (expected, found, least) in updates.chain([losses]) {
            let scale = expected.iter().fold(least, |scale: f64, it| scale.max(it.abs()));
            for (x, y) in expected.iter().zip(&found) {
                assert!(
                    (x - y).abs() <= TOLERANCE * scale,
                    "{:?}: {y} instead of {x}, of {scale}\n{}",
                    case.sample,
                    network.graph
                );
            }
        }
    }
    assert!(n_rounded > 20, "only {n_rounded} samples have numbers of bf16");
}

/// Returns the tensors that no operator computes; passes keep their order.
fn sources_of(graph: &Graph) -> Vec<Value> {
    graph.values().filter(|&it| graph.operator(it).is_none()).collect()
}

#[test]
fn split_parts_recombine() {
    let mut n_splits = 0;
    for case in cases() {
        let fused = fuse(&simplify(&case.network), Precision::F32);
        let (old, new) = (sources_of(&case.network.graph), sources_of(&fused.graph));
        let sources =
            old.iter().zip(&new).map(|(old, new)| (*new, case.sources[old].clone())).collect();
        for (graph, sources) in [(&case.network.graph, &case.sources), (&fused.graph, &sources)] {
            let values = evaluate(graph, sources);
            for value in graph.values() {
                if let Some(operator) = graph.operator(value) {
                    n_splits += split_each_factor(&case.sample, graph, operator, value, &values);
                }
            }
        }
    }
    assert!(n_splits > 100, "only {n_splits} splits were tried");
}

/// Splits each factor of an operator in as many parts as divide it. Returns the number of factors
/// that were split.
fn split_each_factor(
    sample: &Sample,
    graph: &Graph,
    operator: &Operator,
    value: Value,
    values: &BTreeMap<Value, Vec<f64>>,
) -> usize {
    let signature = operator.signature(&graph.operand_shapes(value));
    let mut n_splits = 0;
    for factor in 0..signature.factors.len() {
        let extent = signature.factors[factor];
        let all = [2, 3, 4].into_iter().filter(|it| extent.is_multiple_of(*it));
        n_splits += usize::from(all.clone().next().is_some());
        for n in all {
            let mut n_parts = vec![1; signature.factors.len()];
            n_parts[factor] = n;
            check_split(&format!("{sample:?}"), graph, operator, (value, values), &n_parts);
        }
    }
    n_splits
}

/// Attention of two heads of keys that is compared with its formula.
#[derive(Clone, Copy, Debug)]
struct AttentionCase {
    /// The heads of queries that share a head of keys.
    group: usize,
    queries: usize,
    keys: usize,
    /// Whether a query sees no keys after its own.
    is_causal: bool,
    window: Option<usize>,
}

impl AttentionCase {
    /// Returns the weighted sum of attention over parameters, and values for all sources. `attend`
    /// builds it from queries, keys, values and the mask of visible keys.
    fn network(
        &self,
        sample: Sample,
        attend: impl FnOnce(&mut Builder, [Argument; 4]) -> Value,
    ) -> Case {
        let &Self { group, queries, keys, .. } = self;
        let [heads, features] = [2, 2];
        let mut builder = Builder::new();
        let mut sources = BTreeMap::new();
        let shapes =
            [[heads * group, queries, features], [heads, keys, features], [heads, keys, 1]];
        let mut operands: Vec<Argument> = Vec::new();
        for (at, shape) in shapes.iter().enumerate() {
            let value = builder.parameter(&format!("p{at}"), shape, Init::Constant(0.0));
            let n: usize = shape.iter().product();
            sources.insert(value, (0..n).map(|it| 4.0 * noise(it + 1000 * at) - 2.0).collect());
            operands.push(Argument::Tensor(value));
        }
        let mask = builder.input("mask", DType::F32, &[queries, keys]);
        let is_seen = |it: usize| f64::from(u8::from(self.is_seen(it / keys, it % keys)));
        sources.insert(mask, (0..queries * keys).map(is_seen).collect());
        let weights = builder.input("weights", DType::F32, &[heads * group, queries, 1]);
        let n_results = heads * group * queries;
        sources.insert(weights, (0..n_results).map(|it| noise(it + 7777) - 0.4).collect());
        let [query, key, value]: [Argument; 3] = operands.try_into().unwrap();
        let result = attend(&mut builder, [query, key, value, Argument::Tensor(mask)]);
        let weighted =
            call(&mut builder, "mul", &[Argument::Tensor(result), Argument::Tensor(weights)]);
        let loss = call(&mut builder, "sum", &[Argument::Tensor(weighted), Argument::All]);
        let network = training_step(builder, loss, &[], &Optimizer::default()).unwrap();
        verify(&network).unwrap();
        Case { sample, network, sources }
    }

    fn is_seen(&self, query: usize, key: usize) -> bool {
        !self.is_causal || key <= query && self.window.is_none_or(|it| key + it > query)
    }

    /// Returns the attention in one kernel.
    fn fused(&self) -> Case {
        let sample = |operator| Sample { operator, arguments: &[] };
        match self.window.map(|it| i64::try_from(it).unwrap()) {
            Some(window) => {
                let sample = sample("sliding_window_attention");
                self.network(sample, |builder, [query, key, value, _]| {
                    let arguments = [query, key, value, Argument::Integer(window)];
                    call(builder, sample.operator, &arguments)
                })
            }
            None => {
                let sample = sample("scaled_dot_product_attention");
                self.network(sample, |builder, [query, key, value, _]| {
                    let arguments = [query, key, value, Argument::Boolean(self.is_causal)];
                    call(builder, sample.operator, &arguments)
                })
            }
        }
    }
}

/// Repeats each of two heads for all heads of queries that share it.
fn repeated(builder: &mut Builder, heads: Argument, group: usize) -> Argument {
    let integers = |all: &[usize]| {
        Argument::List(
            all.iter().map(|it| Argument::Integer(i64::try_from(*it).unwrap())).collect(),
        )
    };
    let Argument::Tensor(value) = heads else { unreachable!("heads are a tensor") };
    let shape = builder.shape(value);
    let alone = call(builder, "unsqueeze", &[heads, Argument::Integer(1)]);
    let all = integers(&[shape[0], group, shape[1], shape[2]]);
    let expanded = call(builder, "expand", &[Argument::Tensor(alone), all]);
    let joined = integers(&[shape[0] * group, shape[1], shape[2]]);
    Argument::Tensor(call(builder, "reshape", &[Argument::Tensor(expanded), joined]))
}

/// Returns attention as its formula: products, a mask and a softmax.
fn composed_attention(
    builder: &mut Builder,
    [query, key, value, mask]: [Argument; 4],
    group: usize,
    is_masked: bool,
) -> Value {
    let [key, value] = [key, value].map(|it| repeated(builder, it, group));
    let turned = Argument::Tensor(call(builder, "transpose", &[key]));
    let products = Argument::Tensor(call(builder, "matmul", &[query, turned]));
    let scale = Argument::Float(0.5_f64.sqrt());
    let mut scores = Argument::Tensor(call(builder, "mul", &[products, scale]));
    if is_masked {
        let masked = call(builder, "where_", &[scores, mask, Argument::Float(-1e30)]);
        scores = Argument::Tensor(masked);
    }
    let weights = call(builder, "softmax", &[scores, Argument::Integer(-1)]);
    call(builder, "matmul", &[Argument::Tensor(weights), value])
}

#[test]
fn attention_in_one_kernel_is_its_formula() {
    let of = |group, queries, keys| AttentionCase {
        group,
        queries,
        keys,
        is_causal: true,
        window: None,
    };
    let windows = [(1, 1), (2, 7), (3, 40)]
        .map(|(group, window)| AttentionCase { window: Some(window), ..of(group, 48, 60) });
    // Ranks exchange halos of these.
    let short = [(1, 1), (1, 13), (2, 7), (3, 8)]
        .map(|(group, window)| AttentionCase { window: Some(window), ..of(group, 48, 48) });
    let whole =
        [of(1, 4096, 16), of(2, 4096, 16)].map(|it| AttentionCase { is_causal: false, ..it });
    let causal = [of(1, 4096, 16), of(3, 4096, 16)];
    for case in [whole, causal].concat().into_iter().chain(windows).chain(short) {
        let group = case.group;
        let fused = case.fused();
        let composed = case.network(fused.sample, |builder, operands| {
            composed_attention(builder, operands, group, case.is_causal)
        });
        let text = fuse(&simplify(&fused.network), Precision::F32).graph.to_string();
        for kernel in [
            " attention ",
            " attention-query-gradient ",
            " attention-key-gradient ",
            " attention-value-gradient ",
        ] {
            assert_eq!(text.matches(kernel).count(), 1, "{kernel} in {text}");
        }
        let values = [&fused, &composed].map(|it| evaluate(&it.network.graph, &it.sources));
        let roots = fused.network.roots().into_iter().zip(composed.network.roots());
        for (found, expected) in roots {
            for (found, expected) in values[0][&found].iter().zip(&values[1][&expected]) {
                let is_close = (found - expected).abs() <= 1e-9 * expected.abs().max(1.0);
                assert!(is_close, "{case:?}: {found} instead of {expected}");
            }
        }
        let graph = &fused.network.graph;
        for value in graph.values() {
            if let Some(attend) = graph.operator_as::<Attend>(value) {
                let operator = graph.operator(value).unwrap();
                let is_short = case.queries == case.keys && case.window.is_some();
                assert_eq!(attend.reads_halo, is_short, "{case:?}");
                // The heads of keys, those of queries that share them, and the queries.
                let n_factors = if group > 1 { 3 } else { 2 };
                let n_splits = split_each_factor(&fused.sample, graph, operator, value, &values[0]);
                assert_eq!(n_splits, n_factors);
            }
        }
    }
}
