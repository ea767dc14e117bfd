//! The counts that a denominator is computed from.

use soybean_plan::{Binary, Combine, Instruction, ScalarProgram, Unary};

use super::{Obstacle, ObstacleKind, Search};
use crate::{
    batch::Relation,
    graph::Source,
    operators::{contract::Contract, elementwise::Elementwise, reduce::Reduce},
    scalar,
    value::Value,
};

impl Search<'_> {
    /// Appends the counts that a denominator is computed from: numbers of which a batch with the
    /// rows of several has the sum.
    pub(super) fn find_counts(
        &self,
        denominator: Value,
        counts: &mut Vec<Value>,
    ) -> Result<(), Obstacle> {
        let is_count = self.is_declared_count(denominator) || self.is_count(denominator);
        if is_count {
            if !counts.contains(&denominator) {
                counts.push(denominator);
            }
            return Ok(());
        }
        let operands = self.graph.operands(denominator);
        let is_scalar = |it: &Value| self.graph.shape(*it).n_elements() == 1;
        let is_alias = self.graph.operator(denominator).is_some_and(|it| it.is_alias());
        let map = self.graph.operator_as::<Elementwise>(denominator);
        let has_unit = is_alias || map.is_some_and(|it| keeps_unit(&it.program));
        if !has_unit || !operands.iter().all(is_scalar) {
            return Err(Obstacle { at: denominator, kind: ObstacleKind::NoCount });
        }
        let varying = operands.into_iter().filter(|it| self.varies(*it));
        varying.into_iter().try_for_each(|it| self.find_counts(it, counts))
    }

    /// Returns whether a user's operator says that it is a count.
    fn is_declared_count(&self, value: Value) -> bool {
        self.graph.users(value).into_iter().any(|user| {
            let is_divisor = super::divisor(self.graph, user)
                .is_some_and(|at| self.graph.operands(user)[at] == value);
            is_divisor && self.is_declared(user)
        })
    }

    /// Returns whether a batch with the rows of several has the sum of their values.
    fn is_count(&self, value: Value) -> bool {
        let operator = match &self.graph.node(value).source {
            // A number that comes with the batch.
            Source::Input { .. } => return self.graph.shape(value).n_elements() == 1,
            Source::Parameter(_) | Source::Buffer(_) | Source::State => return false,
            Source::Operator(operator) => operator,
        };
        let varying: Vec<(usize, Value)> = self
            .graph
            .operands(value)
            .into_iter()
            .enumerate()
            .filter(|it| self.varies(it.1))
            .collect();
        let reduce = operator.downcast_ref::<Reduce>();
        let is_product = operator.is::<Contract>() && self.graph.shape(value).n_elements() == 1;
        let is_sum = is_product || reduce.is_some_and(|it| it.combine == Combine::Sum);
        let has_own_row = |it: Value| match &self.rows {
            Some(rows) => matches!(rows[it.index()], Relation::Own { .. }),
            None => true,
        };
        if is_sum && varying.iter().all(|it| has_own_row(it.1)) {
            return true;
        }
        let map = operator.downcast_ref::<Elementwise>();
        let is_converted = map.is_some_and(|it| it.program == scalar::float());
        let sets = operator.signature(&self.graph.operand_shapes(value)).linear;
        let is_linear = sets.iter().any(|set| varying.iter().all(|it| set.contains(&it.0)));
        (is_linear || is_converted) && varying.iter().all(|it| self.is_count(it.1))
    }
}

/// Returns whether a program of counts gives one: neither products of counts nor other functions
/// of them, but multiples, limits and choices.
fn keeps_unit(program: &ScalarProgram) -> bool {
    let is_constant =
        |it| matches!(program.instructions[usize::from(it)], Instruction::Constant(_));
    let keeps = |it: &Instruction| match it {
        Instruction::Input(_)
        | Instruction::Integer(_)
        | Instruction::Constant(_)
        | Instruction::IntegerConstant(_)
        | Instruction::Select(..) => true,
        Instruction::Scalar(_) => false,
        Instruction::Unary(function, _) => {
            matches!(function, Unary::Negate | Unary::Detach | Unary::Float | Unary::Relu)
        }
        Instruction::Binary(Binary::Multiply, x, y) => is_constant(*x) || is_constant(*y),
        Instruction::Binary(Binary::Divide, _, y) => is_constant(*y),
        Instruction::Binary(function, ..) => matches!(
            function,
            Binary::Add
                | Binary::Subtract
                | Binary::Maximum
                | Binary::Equal
                | Binary::Greater
                | Binary::GreaterOrEqual
                | Binary::EqualIntegers
                | Binary::GreaterInteger
                | Binary::AddIntegers
                | Binary::SubtractIntegers
        ),
    };
    program.instructions.iter().all(keeps)
}
