//! Arithmetic of constants: the operators and methods of numbers, bools, arrays and ranges that
//! models need.

use syn::{BinOp, UnOp};

use crate::value::Value;

/// The methods of integers, floats, arrays and ranges.
pub(crate) const METHODS: [&str; 22] = [
    "min",
    "max",
    "abs",
    "pow",
    "div_ceil",
    "is_power_of_two",
    "sqrt",
    "powi",
    "powf",
    "exp",
    "ln",
    "floor",
    "ceil",
    "round",
    "len",
    "iter",
    "into_iter",
    "copied",
    "enumerate",
    "rev",
    "zip",
    "step_by",
];

/// Evaluates `left op right`.
pub(crate) fn binary<'a>(
    op: &BinOp,
    left: &Value<'a>,
    right: &Value<'a>,
) -> Result<Value<'a>, String> {
    match (left, right) {
        (Value::Integer(l), Value::Integer(r)) => integers(op, *l, *r),
        (Value::Float(l), Value::Float(r)) => floats(op, *l, *r),
        (Value::Boolean(l), Value::Boolean(r)) => booleans(op, *l, *r),
        (Value::Text(l), Value::Text(r)) => match op {
            BinOp::Eq(_) => Ok(Value::Boolean(l == r)),
            BinOp::Ne(_) => Ok(Value::Boolean(l != r)),
            _ => Err(not_defined(left, right)),
        },
        _ => Err(not_defined(left, right)),
    }
}

fn not_defined(left: &Value<'_>, right: &Value<'_>) -> String {
    format!("this operator is not defined for {} and {}", left.kind(), right.kind())
}

fn integers<'a>(op: &BinOp, l: i64, r: i64) -> Result<Value<'a>, String> {
    let shift = u32::try_from(r);
    let result = match op {
        BinOp::Add(_) | BinOp::AddAssign(_) => l.checked_add(r),
        BinOp::Sub(_) | BinOp::SubAssign(_) => l.checked_sub(r),
        BinOp::Mul(_) | BinOp::MulAssign(_) => l.checked_mul(r),
        BinOp::Div(_) | BinOp::DivAssign(_) => l.checked_div(r),
        BinOp::Rem(_) | BinOp::RemAssign(_) => l.checked_rem(r),
        BinOp::BitXor(_) | BinOp::BitXorAssign(_) => Some(l ^ r),
        BinOp::BitAnd(_) | BinOp::BitAndAssign(_) => Some(l & r),
        BinOp::BitOr(_) | BinOp::BitOrAssign(_) => Some(l | r),
        BinOp::Shl(_) | BinOp::ShlAssign(_) => shift.ok().and_then(|it| l.checked_shl(it)),
        BinOp::Shr(_) | BinOp::ShrAssign(_) => shift.ok().and_then(|it| l.checked_shr(it)),
        _ => return compared(op, l.partial_cmp(&r)),
    };
    result.map(Value::Integer).ok_or_else(|| match r {
        0 => format!("{l} is divided by zero"),
        _ => format!("{l} and {r}: the result does not fit into 64 bits"),
    })
}

fn floats<'a>(op: &BinOp, l: f64, r: f64) -> Result<Value<'a>, String> {
    let result = match op {
        BinOp::Add(_) | BinOp::AddAssign(_) => l + r,
        BinOp::Sub(_) | BinOp::SubAssign(_) => l - r,
        BinOp::Mul(_) | BinOp::MulAssign(_) => l * r,
        BinOp::Div(_) | BinOp::DivAssign(_) => l / r,
        BinOp::Rem(_) | BinOp::RemAssign(_) => l % r,
        _ => return compared(op, l.partial_cmp(&r)),
    };
    Ok(Value::Float(result))
}

fn booleans<'a>(op: &BinOp, l: bool, r: bool) -> Result<Value<'a>, String> {
    let result = match op {
        BinOp::And(_) | BinOp::BitAnd(_) => l && r,
        BinOp::Or(_) | BinOp::BitOr(_) => l || r,
        BinOp::BitXor(_) => l ^ r,
        _ => return compared(op, l.partial_cmp(&r)),
    };
    Ok(Value::Boolean(result))
}

/// Evaluates a comparison. `None` is the order if one of the numbers is NaN.
fn compared<'a>(op: &BinOp, order: Option<std::cmp::Ordering>) -> Result<Value<'a>, String> {
    let result = match op {
        BinOp::Eq(_) => order.is_some_and(|it| it.is_eq()),
        BinOp::Ne(_) => order.is_none_or(|it| it.is_ne()),
        BinOp::Lt(_) => order.is_some_and(|it| it.is_lt()),
        BinOp::Le(_) => order.is_some_and(|it| it.is_le()),
        BinOp::Gt(_) => order.is_some_and(|it| it.is_gt()),
        BinOp::Ge(_) => order.is_some_and(|it| it.is_ge()),
        _ => return Err("this operator is not defined for such numbers".into()),
    };
    Ok(Value::Boolean(result))
}

/// Evaluates `op operand`.
pub(crate) fn unary<'a>(op: &UnOp, operand: &Value<'a>) -> Result<Value<'a>, String> {
    match (op, operand) {
        (UnOp::Deref(_), it) => Ok(it.clone()),
        (UnOp::Neg(_), Value::Integer(it)) => it
            .checked_neg()
            .map(Value::Integer)
            .ok_or_else(|| format!("-({it}) does not fit into 64 bits")),
        (UnOp::Neg(_), Value::Float(it)) => Ok(Value::Float(-it)),
        (UnOp::Not(_), Value::Boolean(it)) => Ok(Value::Boolean(!it)),
        _ => Err(format!("this operator is not defined for {}", operand.kind())),
    }
}

/// Evaluates `operand as to`.
#[expect(clippy::cast_possible_truncation, reason = "`as` of the user's program truncates too")]
#[expect(clippy::cast_precision_loss, reason = "`as` of the user's program rounds too")]
pub(crate) fn cast<'a>(operand: &Value<'a>, to: &str) -> Result<Value<'a>, String> {
    let is_integer = matches!(to.as_bytes(), [b'i' | b'u', rest @ ..] if rest == b"size" || rest.iter().all(u8::is_ascii_digit));
    match (operand, to) {
        (Value::Integer(it), "f64") => Ok(Value::Float(*it as f64)),
        (Value::Integer(it), "f32") => Ok(Value::Float(f64::from(*it as f32))),
        (Value::Float(it), "f64") => Ok(Value::Float(*it)),
        (Value::Float(it), "f32") => Ok(Value::Float(f64::from(*it as f32))),
        (Value::Integer(it), _) if is_integer => Ok(Value::Integer(*it)),
        (Value::Float(it), _) if is_integer => Ok(Value::Integer(*it as i64)),
        (Value::Boolean(it), _) if is_integer => Ok(Value::Integer(i64::from(*it))),
        _ => Err(format!("{} cannot be cast to `{to}` in a model", operand.kind())),
    }
}

/// Evaluates `receiver.name(arguments)`, or returns `None` if there is no such method.
pub(crate) fn method<'a>(
    name: &str,
    receiver: &Value<'a>,
    arguments: &[Value<'a>],
) -> Option<Result<Value<'a>, String>> {
    match receiver {
        Value::Integer(it) => integer_method(name, *it, arguments),
        Value::Float(it) => float_method(name, *it, arguments).map(|it| Ok(Value::Float(it))),
        Value::List(members) | Value::Sequence(members) => {
            sequence_method(name, members, arguments).map(Ok)
        }
        _ => None,
    }
}

fn integer_method<'a>(
    name: &str,
    it: i64,
    arguments: &[Value<'a>],
) -> Option<Result<Value<'a>, String>> {
    let result = match (name, arguments) {
        ("min", [Value::Integer(other)]) => Some(it.min(*other)),
        ("max", [Value::Integer(other)]) => Some(it.max(*other)),
        ("abs", []) => it.checked_abs(),
        ("pow", [Value::Integer(n)]) => u32::try_from(*n).ok().and_then(|n| it.checked_pow(n)),
        ("div_ceil", [Value::Integer(by)]) => {
            let rounded = by.checked_sub(1).and_then(|rest| it.checked_add(rest));
            rounded.and_then(|it| it.checked_div(*by))
        }
        ("is_power_of_two", []) => return Some(Ok(Value::Boolean(it > 0 && it & (it - 1) == 0))),
        _ => return None,
    };
    Some(result.map(Value::Integer).ok_or_else(|| format!("`{name}` of {it} has no result")))
}

fn float_method(name: &str, it: f64, arguments: &[Value<'_>]) -> Option<f64> {
    Some(match (name, arguments) {
        ("min", [Value::Float(other)]) => it.min(*other),
        ("max", [Value::Float(other)]) => it.max(*other),
        ("powf", [Value::Float(exponent)]) => it.powf(*exponent),
        ("powi", [Value::Integer(n)]) => it.powi(i32::try_from(*n).ok()?),
        ("abs", []) => it.abs(),
        ("sqrt", []) => it.sqrt(),
        ("exp", []) => it.exp(),
        ("ln", []) => it.ln(),
        ("floor", []) => it.floor(),
        ("ceil", []) => it.ceil(),
        ("round", []) => it.round(),
        _ => return None,
    })
}

fn sequence_method<'a>(
    name: &str,
    members: &[Value<'a>],
    arguments: &[Value<'a>],
) -> Option<Value<'a>> {
    let members = members.iter().cloned();
    Some(Value::Sequence(match (name, arguments) {
        ("len", []) => return Some(Value::Integer(i64::try_from(members.len()).ok()?)),
        ("iter" | "into_iter" | "copied", []) => members.collect(),
        ("rev", []) => members.rev().collect(),
        ("enumerate", []) => {
            let pair = |(index, it)| Value::Tuple(vec![Value::Integer(index), it]);
            (0..).zip(members).map(pair).collect()
        }
        ("zip", [Value::List(others) | Value::Sequence(others)]) => {
            let pair = |(it, other): (_, &Value<'a>)| Value::Tuple(vec![it, other.clone()]);
            members.zip(others).map(pair).collect()
        }
        ("step_by", [Value::Integer(step)]) => {
            members.step_by(usize::try_from(*step).ok().filter(|it| *it > 0)?).collect()
        }
        _ => return None,
    }))
}
