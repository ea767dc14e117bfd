//! Functions of a score, which users write for numbers of one query and one key. They compute with
//! scalars that stand for the inputs, and become a scalar program.

use std::{collections::BTreeMap, fmt};

use soybean_plan::{
    Combine, DType, Instruction, Kernel, Register, ScalarProgram, ScoreFunction, Shape,
};

use crate::{
    graph::Graph,
    operator::{GradientBuilder, OperatorCall, Rounding, Rules},
    operators::elementwise::Elementwise,
    scalar::{self, ScalarBuilder},
    signature::Signature,
    value::Value,
};

/// A scalar that stands for an input of a [`ScoreFunction`]. Only operators of a user's function
/// read it, and no kernel computes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScoreInput {
    /// The number of the input.
    pub(crate) number: u8,
}

impl Rules for ScoreInput {
    fn signature(&self, _operands: &[Shape]) -> Signature {
        Signature::new(Vec::new(), Vec::new(), Vec::new(), Combine::Sum)
    }

    fn gradient(
        &self,
        _call: &OperatorCall<'_>,
        _builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        Vec::new()
    }

    fn flops_per_point(&self) -> u64 {
        0
    }

    fn rounding(&self) -> Rounding {
        Rounding::Exact
    }

    fn kernel(&self, _operands: &[Shape], _result: &Shape) -> Option<Kernel> {
        None
    }

    fn dtype(&self, _operands: &[DType]) -> DType {
        if self.number == 0 { DType::F32 } else { DType::I32 }
    }
}

impl fmt::Display for ScoreInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "score-input {}", self.number)
    }
}

/// Returns registers of all inputs of a [`ScoreFunction`].
pub(crate) fn inputs(it: &mut ScalarBuilder) -> [Register; ScoreFunction::N_INPUTS] {
    let mut inputs = [it.input(0); ScoreFunction::N_INPUTS];
    for number in [ScoreFunction::QUERY, ScoreFunction::KEY, ScoreFunction::HEAD] {
        inputs[usize::from(number)] = it.integer(number);
    }
    inputs
}

/// Returns the program that computes a scalar from [`ScoreInput`]s, or `None` if it is computed
/// from other tensors, or not by functions of numbers.
pub(crate) fn program(graph: &Graph, result: Value) -> Option<ScalarProgram> {
    let mut it = ScalarBuilder::default();
    let inputs = inputs(&mut it);
    let is_needed = graph.ancestors(&[result]);
    let mut registers: BTreeMap<Value, Register> = BTreeMap::new();
    for value in graph.values().filter(|it| is_needed[it.index()]) {
        let register = match graph.operator_as::<ScoreInput>(value) {
            Some(input) => inputs[usize::from(input.number)],
            None => {
                let map = graph.operator_as::<Elementwise>(value).filter(|it| is_of_numbers(it))?;
                let operands: Vec<Register> =
                    graph.operands(value).iter().map(|it| registers[it]).collect();
                it.append(&map.program, &operands)[0]
            }
        };
        registers.insert(value, register);
    }
    Some(it.finish(registers[&result]))
}

/// Returns whether a map is a function of numbers alone: not of run-time scalars, nor with a result
/// that its type cuts off.
fn is_of_numbers(map: &Elementwise) -> bool {
    let is_kept = match map.dtype {
        DType::F32 => true,
        DType::I32 => map.program.integer_results()[0],
        DType::Bf16 => false,
    };
    let reads_scalar = |it: &Instruction| matches!(it, Instruction::Scalar(_));
    map.extents.is_empty() && is_kept && !map.program.instructions.iter().any(reads_scalar)
}

/// Returns the derivative of a function of scores by the product; `None` if it is 1.
pub(super) fn slope(score: &ScalarProgram) -> Option<ScalarProgram> {
    let mut it = ScalarBuilder::default();
    let (zero, one) = (it.constant(0.0), it.constant(1.0));
    let Some(derivative) = scalar::derivative(score, 0, ScoreFunction::N_INPUTS) else {
        return Some(it.finish(zero));
    };
    let inputs = inputs(&mut it);
    let result = it.append(score, &inputs)[0];
    let slope = it.append(&derivative, &[&inputs[..], &[result, one]].concat())[0];
    (slope != one).then(|| it.finish(slope))
}

#[cfg(test)]
mod tests {
    use soybean_plan::Unary;

    use super::*;

    #[test]
    fn slopes_are_functions_of_the_inputs() {
        let check = |build: &dyn Fn(&mut ScalarBuilder) -> Register, expected: Option<&str>| {
            let mut it = ScalarBuilder::default();
            let score = build(&mut it);
            let found = slope(&it.finish(score)).map(|it| it.to_string());
            assert_eq!(found.as_deref(), expected);
        };
        let distance = |it: &mut ScalarBuilder| {
            let (query, key) = (it.float(ScoreFunction::QUERY), it.float(ScoreFunction::KEY));
            it.sub(query, key)
        };
        check(&distance, Some("0"));
        let linear_bias = |it: &mut ScalarBuilder| {
            let (score, distance) = (it.input(0), distance(it));
            it.sub(score, distance)
        };
        check(&linear_bias, None);
        let soft_cap = |it: &mut ScalarBuilder| {
            let score = it.input(0);
            it.unary(Unary::Tanh, score)
        };
        check(&soft_cap, Some("sub(1, mul(tanh(x0), tanh(x0)))"));
    }
}
