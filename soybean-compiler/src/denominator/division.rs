//! Divisions and linear dependences of operators.

use soybean_plan::{Binary, Instruction};

use crate::{
    graph::Graph,
    operator::Operator,
    operators::elementwise::{Elementwise, add_elementwise},
    scalar,
    signature::factor_id,
    value::Value,
};

/// How a tensor depends on an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dependence {
    /// No gradient reaches the operand.
    None,
    /// Linear, apart from terms without the operand, which these operands scale.
    Linear {
        /// The positions of the operands that scale it.
        factors: Vec<usize>,
    },
    /// Any other.
    Other,
}

/// Returns how a tensor depends on each of its operands.
pub(super) fn dependences(graph: &Graph, value: Value) -> Vec<Dependence> {
    let operator = graph.operator(value).expect("it is computed");
    let n_operands = graph.operands(value).len();
    if let Some(map) = operator.downcast_ref::<Elementwise>() {
        return (0..n_operands).map(|at| dependence_of_map(map, at)).collect();
    }
    let sets = operator.signature(&graph.operand_shapes(value)).linear;
    let dependence = |at: usize| {
        let with = |other: &usize| sets.iter().any(|it| it.contains(&at) && it.contains(other));
        match with(&at) {
            true => {
                Dependence::Linear { factors: (0..n_operands).filter(|it| !with(it)).collect() }
            }
            false => Dependence::Other,
        }
    };
    (0..n_operands).map(dependence).collect()
}

/// Returns how a map depends on an operand: what the derivative reads, which follow the program's
/// inputs with the result and its gradient.
fn dependence_of_map(map: &Elementwise, at: usize) -> Dependence {
    let n = map.operands.len();
    let Some(derivative) = scalar::derivative(&map.program, factor_id(at), n) else {
        return Dependence::None;
    };
    let read: Vec<usize> = scalar::inputs(&derivative).into_iter().map(usize::from).collect();
    match read.contains(&at) || read.contains(&n) {
        true => Dependence::Other,
        false => Dependence::Linear { factors: read.into_iter().filter(|it| *it < n).collect() },
    }
}

/// Returns the position of the operand by which a map divides its result, if it reads the operand
/// for nothing else.
pub(super) fn divisor(graph: &Graph, value: Value) -> Option<usize> {
    let map = graph.operator_as::<Elementwise>(value)?;
    let [result] = map.program.results[..] else { return None };
    let instructions = &map.program.instructions;
    let Instruction::Binary(Binary::Divide, dividend, divisor) = instructions[usize::from(result)]
    else {
        return None;
    };
    let Instruction::Input(input) = instructions[usize::from(divisor)] else { return None };
    let is_read_once = scalar::n_reads(&map.program, divisor) == 1 && dividend != divisor;
    is_read_once.then_some(usize::from(input))
}

/// Adds a map that divides by one of its operands, without that division.
pub(super) fn without_divisor(
    graph: &mut Graph,
    operator: &Operator,
    operands: &[Value],
    divisor: usize,
) -> Value {
    let map: &Elementwise = operator.downcast_ref().expect("maps divide");
    let numbers: Vec<u8> = (0..operands.len()).map(factor_id).collect();
    let one = scalar::constant(1.0);
    let program = scalar::compose(&map.program, factor_id(divisor), &numbers, &one, &[]);
    let dividend = Elementwise { program: program.clone(), ..map.clone() };
    match operands.iter().enumerate().find(|it| it.0 != divisor) {
        Some((at, &other)) if is_input(&dividend, at) => other,
        Some(_) | None => add_elementwise(graph, map.extents, &map.operands, &program, operands),
    }
}

/// Returns whether a map gives this operand as it is.
fn is_input(map: &Elementwise, at: usize) -> bool {
    let Elementwise { operands, extents, program, .. } = map;
    scalar::renumber(&scalar::identity(), &[factor_id(at)]) == *program
        && operands[at] == crate::operators::elementwise::all_dims(extents)
}
