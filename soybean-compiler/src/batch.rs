//! Which inputs predictions need, and what the rows of a batch are to outputs.
//!
//! An operator computes the parts of a factor independently. A tensor whose dim carries the rows of
//! a batch from operator to operator therefore has a part for each row, which depends on that row
//! alone. A tensor that does not depend on the batch may be read beside it if it repeats itself
//! along that dim. Otherwise results would depend on the place of a row in its batch.

use soybean_plan::Rows;

use crate::{
    graph::{Graph, Source},
    network::Network,
    operator::{Operator, Phase},
    operators::{iota::Iota, map_of},
    scalar,
    signature::{Dim, Signature, factor_id},
    value::Value,
};

/// The properties of a network's batches.
pub(crate) struct Batch {
    /// Marks the inputs of which predictions are computed.
    is_queried: Vec<bool>,
    /// For each entry, the number of rows, if the inputs share one.
    n_rows: Vec<Option<usize>>,
    /// For each entry, the relation of each tensor to the rows of its batch.
    relations: Vec<Vec<Relation>>,
}

/// The relation of a tensor to the rows of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// It does not depend on the batch. A dim is marked if it has an equal part for each row.
    Fixed { repeats: Vec<bool> },
    /// It has a part for each row along this dim, which depends on that row alone.
    Own { dim: usize },
    /// It mixes rows.
    Mixed,
}

impl Batch {
    pub(crate) fn of(network: &Network) -> Self {
        let graph = &network.graph;
        let is_queried = vec![false; graph.n_values()];
        let mut batch = Self { is_queried, n_rows: Vec::new(), relations: Vec::new() };
        for (entry, phase) in network.entries.iter().zip(network.evaluations()) {
            let left = network.left_by(phase).into_iter();
            let left: Vec<Value> = left.filter(|it| Some(*it) != entry.loss).collect();
            let is_queried = graph.ancestors_in(phase, &left);
            let inputs = network.inputs[entry.inputs.clone()].iter();
            let queried: Vec<Value> = inputs.copied().filter(|it| is_queried[it.index()]).collect();
            // Scalars are the same for all rows.
            let mut extents = queried.iter().filter_map(|&it| graph.shape(it).first().copied());
            let n_rows = extents.next().filter(|first| extents.all(|it| it == *first));
            queried.iter().for_each(|it| batch.is_queried[it.index()] = true);
            batch.n_rows.push(n_rows);
            batch.relations.push(relations(graph, n_rows, phase));
        }
        batch
    }

    /// Returns whether predictions depend on this input.
    pub(crate) fn is_queried(&self, value: Value) -> bool {
        self.is_queried[value.index()]
    }

    /// Returns how this output depends on the rows of a batch of this entry. A constant that is the
    /// same for each row of dim 0 has as many rows as the batch.
    pub(crate) fn rows(&self, graph: &Graph, entry: usize, output: Value) -> Rows {
        let is_of_rows = || graph.shape(output).first().copied() == self.n_rows[entry];
        match &self.relations[entry][output.index()] {
            Relation::Fixed { repeats } if repeats.first() == Some(&true) && is_of_rows() => {
                Rows::Own { dim: 0 }
            }
            Relation::Fixed { .. } => Rows::Fixed,
            Relation::Own { dim } => Rows::Own { dim: *dim },
            Relation::Mixed => Rows::Mixed,
        }
    }
}

/// Returns the relation of each tensor to the rows of a batch, of which inputs have so many.
pub(crate) fn relations(graph: &Graph, n_rows: Option<usize>, phase: Phase) -> Vec<Relation> {
    let mut relations: Vec<Relation> = Vec::with_capacity(graph.n_values());
    for value in graph.values() {
        let shape = graph.shape(value);
        let fixed = || Relation::Fixed { repeats: vec![false; shape.len()] };
        relations.push(match (&graph.node(value).source, n_rows) {
            (Source::Input { .. }, n_rows) => match shape.first() {
                None => fixed(),
                Some(extent) if Some(*extent) == n_rows => Relation::Own { dim: 0 },
                Some(_) => Relation::Mixed,
            },
            (Source::Parameter(_) | Source::Buffer(_) | Source::State, _) => fixed(),
            (Source::Operator(operator), _) => {
                let signature = operator.signature(&graph.operand_shapes(value));
                let operands = graph.operands(value).into_iter().enumerate();
                let is_read = |at| graph.reads(value, at, phase) && !is_of_noise(operator, at);
                let is_mask =
                    |it| graph.operator_as::<Iota>(it).is_some_and(|it| it.is_for_padding);
                let read = operands.filter(|&(at, it)| is_read(at) && !is_mask(it));
                let read = read.map(|(at, it)| (at, &relations[it.index()])).collect::<Vec<_>>();
                of_result(&signature, &read, n_rows.unwrap_or(1))
            }
        });
    }
    relations
}

/// Returns whether an operand is read by noise alone, such as the mask of dropout. Evaluations do
/// not need it.
fn is_of_noise(operator: &Operator, operand: usize) -> bool {
    map_of(operator).is_some_and(|it| scalar::is_of_noise(&it.program, factor_id(operand)))
}

/// Returns how an operator's result depends on the rows, given the operands at these positions.
fn of_result(signature: &Signature, operands: &[(usize, &Relation)], n_rows: usize) -> Relation {
    let mut found = None;
    for &(at, relation) in operands {
        let of_operand = match relation {
            Relation::Fixed { .. } => continue,
            Relation::Mixed => return Relation::Mixed,
            Relation::Own { dim } => carried(signature, at, *dim, n_rows),
        };
        match (of_operand, found) {
            (None, _) => return Relation::Mixed,
            (Some(dim), Some(known)) if known != dim => return Relation::Mixed,
            (Some(_), _) => found = of_operand,
        }
    }
    let fixed: Vec<(usize, &[bool])> = operands.iter().filter_map(repeats_of).collect();
    match found {
        None => {
            let repeats = |dim| is_repeated(signature, &fixed, dim, n_rows);
            Relation::Fixed { repeats: (0..signature.result.len()).map(repeats).collect() }
        }
        // A batch of one row has one position.
        Some(dim) if n_rows == 1 || is_repeated(signature, &fixed, dim, n_rows) => {
            Relation::Own { dim }
        }
        Some(_) => Relation::Mixed,
    }
}

fn repeats_of<'a>((at, relation): &(usize, &'a Relation)) -> Option<(usize, &'a [bool])> {
    match relation {
        Relation::Fixed { repeats } => Some((*at, repeats)),
        Relation::Own { .. } | Relation::Mixed => None,
    }
}

/// Returns whether fixed operands give each row an equal part of this dim of the result: those that
/// have its factor repeat themselves along it.
fn is_repeated(
    signature: &Signature,
    operands: &[(usize, &[bool])],
    dim: usize,
    n_rows: usize,
) -> bool {
    let dim = &signature.result[dim];
    let Some(factor) = dim.factor.filter(|_| !is_mixed(signature, dim)) else { return false };
    let repeats = |(dim, is_repeated): (&Dim, &bool)| {
        dim.factor != Some(factor) || (*is_repeated && !is_mixed(signature, dim))
    };
    signature.factors[usize::from(factor)].is_multiple_of(n_rows)
        && operands.iter().all(|(at, it)| signature.operands[*at].iter().zip(*it).all(repeats))
}

/// Returns whether the parts of a dim are not those of its factor alone: slices take other rows,
/// and windows several.
fn is_mixed(signature: &Signature, dim: &Dim) -> bool {
    signature.has_parts(dim) || dim.has_halo()
}

/// Returns the dim of the result that has the rows of this dim of an operand.
fn carried(signature: &Signature, operand: usize, dim: usize, n_rows: usize) -> Option<usize> {
    let of_operand = &signature.operands[operand][dim];
    if is_mixed(signature, of_operand) {
        return None;
    }
    let Some(factor) = of_operand.factor else {
        // Reshapes have no factors for dims of extent 1. If the batch has one row, everything is
        // computed from it.
        let is_alone = |dim: &Dim| n_rows == 1 && dim.extent == 1;
        return signature.result.get(dim).is_some_and(is_alone).then_some(dim);
    };
    // The factor is the outermost part of a dim: it must not hold fewer parts than there are rows.
    let is_whole = signature.factors[usize::from(factor)].is_multiple_of(n_rows);
    let carries = |it: &Dim| it.factor == Some(factor) && !is_mixed(signature, it);
    signature.result.iter().position(carries).filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use soybean_plan::{DType, Rows};

    use super::Batch;
    use crate::{Argument, Builder, Optimizer, build_network, value::Value};

    fn call(builder: &mut Builder, operator: &str, arguments: &[Argument]) -> Value {
        match builder.call(operator, arguments) {
            Ok(Argument::Tensor(value)) => value,
            other => panic!("expected a tensor, found {other:?}"),
        }
    }

    /// Checks how the result of `make` depends on the rows of an input `[6, 8]`.
    fn check(make: impl Fn(&mut Builder, Argument) -> Value, expected: Rows) {
        check_of(6, make, expected);
    }

    fn check_of(n_rows: usize, make: impl Fn(&mut Builder, Argument) -> Value, expected: Rows) {
        let mut builder = Builder::in_mode(soybean_plan::Mode::Inference);
        let x = Argument::Tensor(builder.input("x", DType::F32, &[n_rows, 8]));
        let output = make(&mut builder, x);
        let outputs = [("y".to_owned(), output)];
        let network = build_network(builder, None, &outputs, &Optimizer::default()).unwrap();
        let batch = Batch::of(&network);
        assert_eq!(
            batch.rows(&network.graph, 0, network.outputs[0].1),
            expected,
            "{}",
            network.graph
        );
        assert!(batch.is_queried(network.inputs[0]));
    }

    #[test]
    fn rows_are_followed_by_the_factors_that_carry_them() {
        let list =
            |shape: &[i64]| Argument::List(shape.iter().map(|&it| Argument::Integer(it)).collect());
        let own = |dim| Rows::Own { dim };
        check(|it, x| call(it, "relu", &[x]), own(0));
        check(|it, x| call(it, "softmax", &[x, Argument::Integer(1)]), own(0));
        check(|it, x| call(it, "softmax", &[x, Argument::Integer(0)]), Rows::Mixed);
        check(|it, x| call(it, "transpose", &[x]), own(1));
        check(|it, x| call(it, "reshape", &[x, list(&[12, 4])]), own(0));
        check(|it, x| call(it, "reshape", &[x, list(&[3, 16])]), Rows::Mixed);
        check(|it, x| call(it, "sum", &[x, Argument::Integer(1)]), own(0));
        check(|it, x| call(it, "sum", &[x, Argument::Integer(0)]), Rows::Mixed);
        check(|it, x| call(it, "cumsum", &[x, Argument::Integer(0)]), Rows::Mixed);
        let convolved = |window: usize, padding: i64| {
            move |it: &mut Builder, x: Argument| {
                let image = call(it, "reshape", &[x, list(&[1, 1, 6, 8])]);
                let init = it.init("zeros", &[], &[1, 1, window, window]).unwrap();
                let filter = it.parameter("w", &[1, 1, window, window], init);
                let settings = [1, padding, 1, 1].map(Argument::Integer);
                let operands = [image, filter].map(Argument::Tensor);
                call(it, "conv2d", &[&operands[..], &settings].concat())
            }
        };
        check(convolved(1, 0), own(2));
        check(convolved(3, 1), Rows::Mixed);
        check(convolved(3, 0), Rows::Mixed);
        let part = |start: i64, end: i64| {
            move |it: &mut Builder, x: Argument| {
                let range = [0, start, end].map(Argument::Integer);
                call(it, "slice", &[&[x][..], &range].concat())
            }
        };
        check(part(0, 3), Rows::Mixed);
        check(part(1, 3), Rows::Mixed);
        let gram = |it: &mut Builder, x: Argument| {
            let transposed = Argument::Tensor(call(it, "transpose", std::slice::from_ref(&x)));
            call(it, "matmul", &[x, transposed])
        };
        check(gram, Rows::Mixed);
        let plus = |shape: &'static [usize]| {
            move |it: &mut Builder, x: Argument| {
                let init = it.init("zeros", &[], shape).unwrap();
                let p = Argument::Tensor(it.parameter("p", shape, init));
                call(it, "add", &[x, p])
            }
        };
        check(plus(&[8]), own(0));
        check(plus(&[1, 8]), own(0));
        check(plus(&[6, 1]), Rows::Mixed);
        check(plus(&[6, 8]), Rows::Mixed);
    }

    // Guards: constants that are the same for all rows may be read beside the batch (`topk(..).1`
    // gives indices of an `arange` of each row), and those that are not may not.
    #[test]
    fn constants_that_repeat_for_each_row_mix_nothing() {
        let list =
            |shape: &[i64]| Argument::List(shape.iter().map(|&it| Argument::Integer(it)).collect());
        let own = |dim| Rows::Own { dim };
        let ascending = || Argument::Text("ascending".to_owned());
        check(|it, x| call(it, "argsort", &[x, Argument::Integer(1), ascending()]), own(0));
        check(|it, x| call(it, "argsort", &[x, Argument::Integer(0), ascending()]), Rows::Mixed);
        let numbers = |n: i64, shape: &'static [i64], then: &'static [i64]| {
            move |it: &mut Builder, x: Argument| {
                let numbers = Argument::Tensor(call(it, "arange", &[Argument::Integer(n)]));
                let numbers = Argument::Tensor(call(it, "reshape", &[numbers, list(shape)]));
                let numbers = Argument::Tensor(call(it, "expand", &[numbers, list(then)]));
                call(it, "add", &[x, numbers])
            }
        };
        check(numbers(8, &[1, 8], &[6, 8]), own(0));
        check(numbers(6, &[6, 1], &[6, 8]), Rows::Mixed);
        let constant = |shape: &[i64]| {
            let mut builder = Builder::in_mode(soybean_plan::Mode::Inference);
            let x = Argument::Tensor(builder.input("x", DType::F32, &[6, 8]));
            let y = call(&mut builder, "relu", &[x]);
            let z = call(&mut builder, "full", &[list(shape), Argument::Float(2.0)]);
            let outputs = [("y".to_owned(), y), ("z".to_owned(), z)];
            let network = build_network(builder, None, &outputs, &Optimizer::default()).unwrap();
            Batch::of(&network).rows(&network.graph, 0, network.outputs[1].1)
        };
        assert_eq!(constant(&[6, 5]), own(0));
        for other in [&[5, 6][..], &[12, 5], &[]] {
            assert_eq!(constant(other), Rows::Fixed);
        }
    }

    #[test]
    fn a_batch_of_one_row_has_nothing_to_mix_it_with() {
        let list =
            |shape: &[i64]| Argument::List(shape.iter().map(|&it| Argument::Integer(it)).collect());
        let own = |dim| Rows::Own { dim };
        check_of(1, |it, x| call(it, "relu", &[x]), own(0));
        check_of(1, |it, x| call(it, "transpose", &[x]), own(1));
        check_of(1, |it, x| call(it, "sum", &[x, Argument::Integer(1)]), own(0));
        check_of(1, |it, x| call(it, "reshape", &[x, list(&[1, 2, 4])]), own(0));
        let placed = |it: &mut Builder, x: Argument| {
            let init = it.init("zeros", &[], &[1, 8]).unwrap();
            let p = Argument::Tensor(it.parameter("p", &[1, 8], init));
            call(it, "add", &[x, p])
        };
        check_of(1, placed, own(0));
        // No dim of the result is that of the batch.
        check_of(1, |it, x| call(it, "reshape", &[x, list(&[8])]), Rows::Mixed);
        check_of(1, |it, x| call(it, "sum", &[x, Argument::Integer(0)]), Rows::Mixed);
    }

    #[test]
    fn scalars_are_the_same_for_all_rows() {
        let mut builder = Builder::in_mode(soybean_plan::Mode::Inference);
        let scale = Argument::Tensor(builder.input("scale", DType::F32, &[]));
        let x = Argument::Tensor(builder.input("x", DType::F32, &[6, 8]));
        let scaled = call(&mut builder, "mul", &[x, scale.clone()]);
        let square = call(&mut builder, "square", &[scale]);
        let outputs = [("y".to_owned(), scaled), ("z".to_owned(), square)];
        let network = build_network(builder, None, &outputs, &Optimizer::default()).unwrap();
        let rows = |at: usize| Batch::of(&network).rows(&network.graph, 0, network.outputs[at].1);
        assert_eq!([rows(0), rows(1)], [Rows::Own { dim: 0 }, Rows::Fixed]);
    }

    #[test]
    fn what_no_input_reaches_is_fixed() {
        let mut builder = Builder::in_mode(soybean_plan::Mode::Inference);
        builder.input("x", DType::F32, &[6, 8]);
        let init = builder.init("zeros", &[], &[4]).unwrap();
        let w = Argument::Tensor(builder.parameter("w", &[4], init));
        let outputs = [("y".to_owned(), call(&mut builder, "relu", &[w]))];
        let network = build_network(builder, None, &outputs, &Optimizer::default()).unwrap();
        assert_eq!(Batch::of(&network).rows(&network.graph, 0, network.outputs[0].1), Rows::Fixed);
    }
}
