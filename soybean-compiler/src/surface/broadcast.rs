//! Maps over operands of different shapes, with `NumPy`'s broadcasting.

use soybean_plan::{DType, Register, Shape};

use super::{Arguments, map};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::reshape::Reshape,
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
    value::Value,
};

/// An operand of a broadcast map.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    /// A number, the same at every point.
    Number(f64),
    /// A tensor, repeated along the dims that it lacks.
    Tensor(Value),
}

impl Arguments<'_> {
    /// Returns a tensor of `f32` or a number.
    pub(super) fn operand(
        &self,
        builder: &Builder,
        position: usize,
    ) -> Result<Operand, CallDiagnostic> {
        match self.get(position).as_number() {
            Some(number) => Ok(Operand::Number(number)),
            None => Ok(Operand::Tensor(self.tensor(builder, position)?)),
        }
    }

    /// Returns a tensor of any type or a number.
    pub(super) fn comparable(
        &self,
        builder: &Builder,
        position: usize,
    ) -> Result<Operand, CallDiagnostic> {
        match *self.get(position) {
            Argument::Tensor(value) if builder.dtype(value) == DType::I32 => {
                Ok(Operand::Tensor(value))
            }
            _ => self.operand(builder, position),
        }
    }

    /// Returns a tensor of any type, which holds where it is not 0.
    pub(super) fn condition(
        &self,
        builder: &Builder,
        position: usize,
    ) -> Result<Operand, CallDiagnostic> {
        match self.get(position) {
            Argument::Tensor(_) => self.comparable(builder, position),
            _ => Err(self.expected(position, "a tensor that is a condition").with_help(
                "comparisons such as `x.gt(0.0)` are conditions, and so are masks of 0 and 1",
            )),
        }
    }
}

/// Adds a map of arguments at these positions, broadcast against each other: aligned at the last
/// dim, with missing dims and dims of extent 1 repeated. Integers are converted to numbers.
pub(super) fn broadcast(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    operands: &[(usize, Operand)],
    program: impl FnOnce(&mut ScalarBuilder, &[Register]) -> Register,
) -> Result<Argument, CallDiagnostic> {
    broadcast_as(DType::F32, builder, arguments, operands, program)
}

/// Adds a map of arguments, broadcast in the same way. If the tensors at positions in `chosen` are
/// of `i32`, the numbers there must be integers, and so are all their registers and the result;
/// otherwise none may be of `i32`.
pub(super) fn compute(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    operands: &[(usize, Operand)],
    chosen: &[usize],
    program: impl FnOnce(&mut ScalarBuilder, &[Register]) -> Register,
) -> Result<Argument, CallDiagnostic> {
    let is_chosen = |it: &&(usize, Operand)| chosen.contains(&it.0);
    let is_integer = |it: &(usize, Operand)| match it.1 {
        Operand::Number(_) => false,
        Operand::Tensor(value) => builder.dtype(value) == DType::I32,
    };
    let is_number = |it: &(usize, Operand)| match it.1 {
        Operand::Number(_) => !matches!(arguments.get(it.0), Argument::Integer(_)),
        Operand::Tensor(value) => builder.dtype(value) != DType::I32,
    };
    let Some(&(integer, _)) = operands.iter().filter(is_chosen).find(|it| is_integer(it)) else {
        return broadcast_as(DType::F32, builder, arguments, operands, program);
    };
    if operands.iter().filter(is_chosen).any(is_number) {
        let message = "takes operands of one type, found i32 and f32";
        return Err(arguments
            .fault(integer, message)
            .with_help("`.to_f32()` makes numbers of integers"));
    }
    for &(position, operand) in operands.iter().filter(is_chosen) {
        if let Operand::Number(number) = operand
            && as_integer(number).is_none()
        {
            return Err(arguments.expected_number(position, "an integer of 32 bits", number));
        }
    }
    broadcast_as(DType::I32, builder, arguments, operands, program)
}

/// Adds a comparison of arguments, broadcast in the same way. If all are integers, their registers
/// are of integers.
pub(super) fn compare(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    operands: &[(usize, Operand)],
    program: impl FnOnce(&mut ScalarBuilder, &[Register]) -> Register,
) -> Result<Argument, CallDiagnostic> {
    let is_integer = |(_, operand): &(usize, Operand)| match *operand {
        Operand::Number(number) => as_integer(number).is_some(),
        Operand::Tensor(value) => builder.dtype(value) == DType::I32,
    };
    let dtype = if operands.iter().all(is_integer) { DType::I32 } else { DType::F32 };
    broadcast_as(dtype, builder, arguments, operands, program)
}

/// Returns a number as an integer, if it is one of 32 bits.
fn as_integer(number: f64) -> Option<i32> {
    #[expect(clippy::cast_possible_truncation, reason = "compared with the number")]
    let integer = number as i32;
    (f64::from(integer) == number).then_some(integer)
}

/// Adds a map of arguments. Registers of tensors of `i32` are of this type, and so are those of
/// numbers that have a value in it.
fn broadcast_as(
    dtype: DType,
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    operands: &[(usize, Operand)],
    program: impl FnOnce(&mut ScalarBuilder, &[Register]) -> Register,
) -> Result<Argument, CallDiagnostic> {
    let (mut tensors, mut scalar) = (Vec::new(), ScalarBuilder::default());
    let mut extents: Option<Shape> = None;
    let mut registers = vec![0; operands.len()];
    for (register, &(position, operand)) in registers.iter_mut().zip(operands) {
        let Operand::Tensor(value) = operand else { continue };
        let shape = builder.shape(value);
        extents = Some(match extents {
            Some(before) => broadcast_shape(&before, &shape)
                .ok_or_else(|| does_not_broadcast(arguments, position, &before, &shape))?,
            None => shape,
        });
        let input = factor_id(tensors.len());
        *register = match (builder.dtype(value), dtype) {
            (DType::I32, DType::I32) => scalar.integer(input),
            (DType::I32, DType::F32 | DType::Bf16) => scalar.float(input),
            (DType::F32 | DType::Bf16, _) => scalar.input(input),
        };
        tensors.push(value);
    }
    let Some(extents) = extents else {
        return Err(arguments.expected(operands[0].0, "a tensor"));
    };
    for (register, &(_, operand)) in registers.iter_mut().zip(operands) {
        if let Operand::Number(number) = operand {
            *register = match as_integer(number).filter(|_| dtype == DType::I32) {
                Some(integer) => scalar.integer_constant(integer),
                None => scalar.constant(number),
            };
        }
    }
    let result = program(&mut scalar, &registers);
    let operands: Vec<(Value, Vec<FactorId>)> =
        tensors.into_iter().map(|value| squeezed(builder, value, &extents)).collect();
    Ok(Argument::Tensor(map(builder, extents, &operands, &scalar.finish(result))))
}

fn does_not_broadcast(
    arguments: &Arguments<'_>,
    position: usize,
    left: &Shape,
    right: &Shape,
) -> CallDiagnostic {
    let message = format!("shapes {left} and {right} do not broadcast");
    let help =
        "aligned at the last dim, each pair of extents must be equal, or one of them 1 or missing";
    arguments.fault(position, message).with_help(help)
}

/// Returns the smallest shape to which both broadcast.
pub(super) fn broadcast_shape(left: &Shape, right: &Shape) -> Option<Shape> {
    let rank = left.len().max(right.len());
    let extent = |shape: &Shape, dim: usize| {
        (dim + shape.len()).checked_sub(rank).map_or(1, |dim| shape[dim])
    };
    let both = |dim| match (extent(left, dim), extent(right, dim)) {
        (x, y) if x == y => Some(x),
        (x, 1) => Some(x),
        (1, y) => Some(y),
        _ => None,
    };
    (0..rank).map(both).collect()
}

/// Returns a tensor without its dims that are repeated in `extents`, and the dims of `extents` that
/// it has.
pub(super) fn squeezed(
    builder: &mut Builder,
    value: Value,
    extents: &Shape,
) -> (Value, Vec<FactorId>) {
    let shape = builder.shape(value);
    let skipped = extents.len() - shape.len();
    let kept: Vec<usize> =
        (0..shape.len()).filter(|&dim| shape[dim] == extents[dim + skipped]).collect();
    let ids = kept.iter().map(|&dim| factor_id(dim + skipped)).collect();
    if kept.len() == shape.len() {
        return (value, ids);
    }
    let shape = kept.iter().map(|&dim| shape[dim]).collect();
    (builder.graph.add(Reshape { shape }.into(), &[value]), ids)
}
