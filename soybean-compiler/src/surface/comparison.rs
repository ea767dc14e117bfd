//! Comparisons, which give 1 or 0 and have no gradient, and the choices that are made by them.
//! Integers are compared and chosen exactly.

use soybean_plan::{Binary, Register, Unary};

use super::{
    Arguments, Row, SampleArgument,
    broadcast::{Operand, broadcast, compare, compute},
};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    scalar::ScalarBuilder,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

const LABELS: SampleArgument = SampleArgument::Labels { shape: &[3, 4], n_classes: 5 };

/// The row of a function of two tensors or numbers.
macro_rules! row {
    ($name:literal, $doc:literal, $take:ident, $build:ident, $samples:expr, $program:expr) => {
        Row {
            name: $name,
            doc: $doc,
            arguments: &["input", "other"],
            build: |builder, arguments| {
                let operands =
                    [(0, arguments.$take(builder, 0)?), (1, arguments.$take(builder, 1)?)];
                $build(builder, arguments, &operands, |it, x| $program(it, x[0], x[1]))
            },
            samples: $samples,
        }
    };
}

pub(super) const TABLE: &[Row] = &[
    row!("eq", "1 where `x == other`, else 0.", comparable, compare, EQUAL, ScalarBuilder::equal),
    row!("ne", "1 where `x != other`, else 0.", comparable, compare, EQUAL, not_equal),
    row!(
        "lt",
        "1 where `x < other`, else 0.",
        comparable,
        compare,
        ORDER,
        |it: &mut ScalarBuilder, x, y| greater(it, y, x)
    ),
    row!(
        "le",
        "1 where `x <= other`, else 0.",
        comparable,
        compare,
        ORDER,
        |it: &mut ScalarBuilder, x, y| it.greater_or_equal(y, x)
    ),
    row!("gt", "1 where `x > other`, else 0.", comparable, compare, ORDER, greater),
    row!(
        "ge",
        "1 where `x >= other`, else 0.",
        comparable,
        compare,
        ORDER,
        ScalarBuilder::greater_or_equal
    ),
    row!(
        "logical_and",
        "Written `x & other`: 1 where both conditions hold, else 0. A condition holds where it is not 0.",
        condition,
        broadcast,
        CONDITIONS,
        |it: &mut ScalarBuilder, x, y| {
            let both = [x, y].map(|condition| holds(it, condition));
            it.mul(both[0], both[1])
        }
    ),
    row!(
        "logical_or",
        "Written `x | other`: 1 where one of two conditions holds or both do, else 0.",
        condition,
        broadcast,
        CONDITIONS,
        |it: &mut ScalarBuilder, x, y| {
            let both = [x, y].map(|condition| fails(it, condition));
            let (one, neither) = (it.constant(1.0), it.mul(both[0], both[1]));
            it.sub(one, neither)
        }
    ),
    row!(
        "logical_xor",
        "Written `x ^ other`: 1 where just one of two conditions holds, else 0.",
        condition,
        broadcast,
        CONDITIONS,
        |it: &mut ScalarBuilder, x, y| {
            let both = [x, y].map(|condition| fails(it, condition));
            not_equal(it, both[0], both[1])
        }
    ),
    Row {
        name: "logical_not",
        doc: "Written `!x`: 1 where a condition does not hold, else 0.",
        arguments: &["input"],
        build: |builder, arguments| {
            let operand = [(0, arguments.condition(builder, 0)?)];
            broadcast(builder, arguments, &operand, |it, x| fails(it, x[0]))
        },
        samples: &[&[LABELS], &[tensor(&[4, 6])]],
    },
    row!(
        "maximum",
        "The larger of two; equal ones share the gradient.",
        comparable,
        choose,
        CHOICE,
        maximum
    ),
    row!(
        "minimum",
        "The smaller of two; equal ones share the gradient.",
        comparable,
        choose,
        CHOICE,
        minimum
    ),
    Row {
        name: "clamp",
        doc: "`x` kept between `low` and `high`.",
        arguments: &["input", "low", "high"],
        build: clamp,
        samples: &[
            &[tensor(&[4, 6]), SampleArgument::Float(-0.5), SampleArgument::Integer(1)],
            &[LABELS, SampleArgument::Integer(1), SampleArgument::Integer(3)],
        ],
    },
    Row {
        name: "where_",
        doc: "`x` where `condition` holds, which is where it is not 0, else `other`.",
        arguments: &["input", "condition", "other"],
        build: where_,
        samples: &[
            &[tensor(&[3, 4]), LABELS, SampleArgument::Float(-3.0)],
            &[tensor(&[2, 1, 5]), tensor(&[3, 1]), tensor(&[4, 1, 1, 5])],
            &[LABELS, tensor(&[3, 1]), SampleArgument::Integer(-100)],
            &[LABELS, LABELS, SampleArgument::Labels { shape: &[4], n_classes: 3 }],
        ],
    },
    Row {
        name: "masked_fill",
        doc: "`value` where the condition `mask` holds, else `x`.",
        arguments: &["input", "mask", "value"],
        build: masked_fill,
        samples: &[
            &[tensor(&[3, 4]), LABELS, SampleArgument::Float(-3.0)],
            &[tensor(&[2, 4, 5]), tensor(&[4, 1]), SampleArgument::Integer(0)],
            &[LABELS, LABELS, SampleArgument::Integer(-100)],
        ],
    },
];

const EQUAL: &[&[SampleArgument]] = &[
    &[LABELS, SampleArgument::Integer(2)],
    &[tensor(&[3, 1]), tensor(&[5])],
    &[tensor(&[2, 3]), LABEL_PAIR],
];
const LABEL_PAIR: SampleArgument = SampleArgument::Labels { shape: &[2, 1], n_classes: 2 };
const ORDER: &[&[SampleArgument]] = &[
    &[tensor(&[4, 6]), SampleArgument::Float(0.25)],
    &[tensor(&[3, 1, 5]), tensor(&[4, 1])],
    &[LABELS, SampleArgument::Integer(2)],
];
const CONDITIONS: &[&[SampleArgument]] = &[
    &[LABELS, tensor(&[4])],
    &[LABEL_PAIR, SampleArgument::Labels { shape: &[3], n_classes: 2 }],
    &[tensor(&[3, 1, 5]), tensor(&[4, 1])],
];
const CHOICE: &[&[SampleArgument]] = &[
    &[tensor(&[4, 6]), tensor(&[4, 6])],
    &[tensor(&[3, 1, 5]), tensor(&[4, 1])],
    &[tensor(&[7]), SampleArgument::Float(0.25)],
    &[LABELS, SampleArgument::Integer(2)],
    &[LABELS, SampleArgument::Labels { shape: &[4], n_classes: 3 }],
];

/// Returns 1 where a condition holds, else 0.
fn holds(it: &mut ScalarBuilder, condition: Register) -> Register {
    let zero = it.constant(0.0);
    not_equal(it, condition, zero)
}

/// Returns 1 where a condition does not hold, else 0.
fn fails(it: &mut ScalarBuilder, condition: Register) -> Register {
    let zero = it.constant(0.0);
    it.equal(condition, zero)
}

fn not_equal(it: &mut ScalarBuilder, x: Register, y: Register) -> Register {
    let (one, is_equal) = (it.constant(1.0), it.equal(x, y));
    it.sub(one, is_equal)
}

fn greater(it: &mut ScalarBuilder, x: Register, y: Register) -> Register {
    it.greater(x, y)
}

/// Adds the choice between two arguments, which are both of numbers or both of integers.
fn choose(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    operands: &[(usize, Operand)],
    program: impl FnOnce(&mut ScalarBuilder, &[Register]) -> Register,
) -> Result<Argument, CallDiagnostic> {
    let choice = compute(builder, arguments, operands, &[0, 1], program)?;
    chosen(builder, choice)
}

/// Marks a tensor whose elements are chosen from others, so that no gradient of the others is NaN.
fn chosen(builder: &mut Builder, choice: Argument) -> Result<Argument, CallDiagnostic> {
    if let Argument::Tensor(value) = choice {
        builder.choices.push(value);
    }
    Ok(choice)
}

fn maximum(it: &mut ScalarBuilder, x: Register, y: Register) -> Register {
    if it.is_integer(x) {
        let is_greater = it.greater(x, y);
        return it.select(is_greater, x, y);
    }
    it.binary(Binary::Maximum, x, y)
}

// min(x, y) = -max(-x, -y) for numbers, which keeps NaN; the least integer has no negative.
fn minimum(it: &mut ScalarBuilder, x: Register, y: Register) -> Register {
    if it.is_integer(x) {
        let is_greater = it.greater(x, y);
        return it.select(is_greater, y, x);
    }
    let (x, y) = (it.unary(Unary::Negate, x), it.unary(Unary::Negate, y));
    let maximum = it.binary(Binary::Maximum, x, y);
    it.unary(Unary::Negate, maximum)
}

// The gradient flows where low <= x <= high.
fn clamp(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.any_tensor(0)?;
    let (low, high) = (arguments.number(1)?, arguments.number(2)?);
    if low.is_nan() || high.is_nan() || low > high {
        return Err(arguments
            .fault(2, format!("`high` must not be less than `low`, found {low} and {high}")));
    }
    let operands =
        [(0, Operand::Tensor(value)), (1, Operand::Number(low)), (2, Operand::Number(high))];
    let choice = compute(builder, arguments, &operands, &[0, 1, 2], |it, x| {
        let (is_below, is_above) = (greater(it, x[1], x[0]), greater(it, x[0], x[2]));
        let upper = it.select(is_above, x[2], x[0]);
        it.select(is_below, x[1], upper)
    })?;
    chosen(builder, choice)
}

fn where_(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let operands = [
        (0, arguments.comparable(builder, 0)?),
        (1, arguments.condition(builder, 1)?),
        (2, arguments.comparable(builder, 2)?),
    ];
    let choice = compute(builder, arguments, &operands, &[0, 2], |it, x| {
        let condition = number(it, x[1]);
        it.select(condition, x[0], x[2])
    })?;
    chosen(builder, choice)
}

fn masked_fill(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
) -> Result<Argument, CallDiagnostic> {
    let value = arguments.number(2)?;
    let operands = [
        (0, arguments.comparable(builder, 0)?),
        (1, arguments.condition(builder, 1)?),
        (2, Operand::Number(value)),
    ];
    let choice = compute(builder, arguments, &operands, &[0, 2], |it, x| {
        let condition = number(it, x[1]);
        it.select(condition, x[2], x[0])
    })?;
    chosen(builder, choice)
}

/// Returns an integer as a number, and a number itself.
fn number(it: &mut ScalarBuilder, x: Register) -> Register {
    if it.is_integer(x) { it.unary(Unary::Float, x) } else { x }
}
