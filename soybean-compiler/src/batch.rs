//! Which inputs predictions need, and what the rows of a batch are to outputs.
//!
//! An operator computes the parts of a factor independently. A tensor whose dim carries the rows of
//! a batch from operator to operator therefore has a part for each row, which depends on that row
//! alone.

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
    /// For each entry, the relation of each tensor to the rows of its batch.
    rows: Vec<Vec<Rows>>,
}

impl Batch {
    pub(crate) fn of(network: &Network) -> Self {
        let graph = &network.graph;
        let mut batch = Self { is_queried: vec![false; graph.n_values()], rows: Vec::new() };
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
            batch.rows.push(rows(graph, n_rows, phase));
        }
        batch
    }

    /// Returns whether predictions depend on this input.
    pub(crate) fn is_queried(&self, value: Value) -> bool {
        self.is_queried[value.index()]
    }

    /// Returns how this tensor depends on the rows of a batch of this entry.
    pub(crate) fn rows(&self, entry: usize, value: Value) -> Rows {
        self.rows[entry][value.index()]
    }
}

fn rows(graph: &Graph, n_rows: Option<usize>, phase: Phase) -> Vec<Rows> {
    let mut rows: Vec<Rows> = Vec::with_capacity(graph.n_values());
    for value in graph.values() {
        rows.push(match (&graph.node(value).source, n_rows) {
            (Source::Input { .. }, n_rows) => match graph.shape(value).first() {
                None => Rows::Fixed,
                Some(extent) if Some(*extent) == n_rows => Rows::Own { dim: 0 },
                Some(_) => Rows::Mixed,
            },
            (Source::Parameter(_) | Source::Buffer(_) | Source::State, _) => Rows::Fixed,
            (Source::Operator(operator), _) => {
                let signature = operator.signature(&graph.operand_shapes(value));
                let operands = graph.operands(value).into_iter().enumerate();
                let is_read = |at| graph.reads(value, at, phase) && !is_of_noise(operator, at);
                let is_mask =
                    |it| graph.operator_as::<Iota>(it).is_some_and(|it| it.is_for_padding);
                let read = operands.filter(|&(at, it)| is_read(at) && !is_mask(it));
                let rows = read.map(|(at, it)| (at, rows[it.index()])).collect::<Vec<_>>();
                of_result(&signature, &rows, n_rows.unwrap_or(1))
            }
        });
    }
    rows
}

/// Returns whether an operand is read by noise alone, such as the mask of dropout. Evaluations do
/// not need it.
fn is_of_noise(operator: &Operator, operand: usize) -> bool {
    map_of(operator).is_some_and(|it| scalar::is_of_noise(&it.program, factor_id(operand)))
}

/// Returns how an operator's result depends on the rows, given the operands at these positions.
fn of_result(signature: &Signature, operands: &[(usize, Rows)], n_rows: usize) -> Rows {
    let mut found = Rows::Fixed;
    for &(at, rows) in operands {
        let of_operand = match rows {
            Rows::Fixed => continue,
            Rows::Mixed => return Rows::Mixed,
            Rows::Own { dim } => carried(signature, at, dim, n_rows),
        };
        let Some(dim) = of_operand else { return Rows::Mixed };
        match found {
            Rows::Own { dim: known } if known != dim => return Rows::Mixed,
            Rows::Fixed | Rows::Own { .. } | Rows::Mixed => found = Rows::Own { dim },
        }
    }
    let Rows::Own { dim } = found else { return found };
    // A fixed tensor with a part for each position in the batch differs between positions. A batch
    // of one row has one position.
    let has_rows = |at: usize| {
        let factor = signature.result[dim].factor;
        signature.operands[at].iter().any(|it| it.factor == factor)
    };
    let is_placed = |&(at, rows): &(usize, Rows)| rows == Rows::Fixed && has_rows(at);
    if n_rows > 1 && operands.iter().any(is_placed) { Rows::Mixed } else { found }
}

/// Returns the dim of the result that has the rows of this dim of an operand.
fn carried(signature: &Signature, operand: usize, dim: usize, n_rows: usize) -> Option<usize> {
    let of_operand = &signature.operands[operand][dim];
    // Slices take other rows, and windows several.
    let is_mixed = |it: &Dim| signature.has_parts(it) || it.has_halo();
    if is_mixed(of_operand) {
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
    let carries = |it: &Dim| it.factor == Some(factor) && !is_mixed(it);
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
        assert_eq!(batch.rows(0, network.outputs[0].1), expected, "{}", network.graph);
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
        let rows = |at: usize| Batch::of(&network).rows(0, network.outputs[at].1);
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
        assert_eq!(Batch::of(&network).rows(0, network.outputs[0].1), Rows::Fixed);
    }
}
