//! The arguments of a call, with access that says what is wrong.

use soybean_plan::{DType, NumberRange};

use super::{Form, Row};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    size_limits::MAX_EXTENT,
    value::Value,
};

/// The arguments of a call, with access that says what is wrong.
pub(crate) struct Arguments<'a> {
    row: &'a Row,
    given: &'a [Argument],
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(
        form: Form,
        row: &'a Row,
        given: &'a [Argument],
    ) -> Result<Self, CallDiagnostic> {
        if given.len() == row.arguments.len() {
            return Ok(Self { row, given });
        }
        let n_receivers = usize::from(form == Form::Method);
        let call = format!("`{}({})`", row.name, row.arguments[n_receivers..].join(", "));
        let expected = row.arguments.len() - n_receivers;
        let found = given.len().saturating_sub(n_receivers);
        Err(CallDiagnostic::call(format!(
            "{call} takes {expected} argument{}, found {found}",
            if expected == 1 { "" } else { "s" }
        )))
    }

    /// Returns a diagnostic of one argument whose message begins with the operator's name.
    pub(crate) fn fault(&self, position: usize, message: impl std::fmt::Display) -> CallDiagnostic {
        CallDiagnostic::argument(position, format!("`{}`: {message}", self.row.name))
    }

    pub(crate) fn get(&self, position: usize) -> &'a Argument {
        &self.given[position]
    }

    pub(super) fn expected(&self, position: usize, what: &str) -> CallDiagnostic {
        let (argument, found) = (self.row.arguments[position], self.given[position].kind());
        self.fault(position, format!("`{argument}` must be {what}, found {found}"))
    }

    /// Returns a diagnostic of a number that is not of this kind.
    pub(super) fn expected_number(
        &self,
        position: usize,
        what: &str,
        found: impl std::fmt::Display,
    ) -> CallDiagnostic {
        let argument = self.row.arguments[position];
        self.fault(position, format!("`{argument}` must be {what}, found {found}"))
    }

    /// Returns a tensor of `f32`.
    pub(crate) fn tensor(
        &self,
        builder: &Builder,
        position: usize,
    ) -> Result<Value, CallDiagnostic> {
        let value = self.any_tensor(position)?;
        match builder.dtype(value) {
            DType::F32 | DType::Bf16 => Ok(value),
            DType::I32 => Err(self
                .fault(position, "takes tensors of f32, found i32")
                .with_help("`.to_f32()` makes numbers of integers")),
        }
    }

    /// Returns a tensor of any type.
    pub(crate) fn any_tensor(&self, position: usize) -> Result<Value, CallDiagnostic> {
        match self.given[position] {
            Argument::Tensor(value) => Ok(value),
            _ => Err(self.expected(position, "a tensor")),
        }
    }

    /// Returns an array of at least one tensor, all of one type.
    pub(crate) fn tensors(
        &self,
        builder: &Builder,
        position: usize,
    ) -> Result<Vec<Value>, CallDiagnostic> {
        let Argument::List(items) = &self.given[position] else {
            return Err(self.expected(position, "an array of tensors"));
        };
        let tensor = |item: &Argument| match item {
            Argument::Tensor(value) => Ok(*value),
            _ => Err(self.fault(
                position,
                format!("expected an array of tensors, found {} in it", item.kind()),
            )),
        };
        let tensors = items.iter().map(tensor).collect::<Result<Vec<_>, _>>()?;
        let Some(&first) = tensors.first() else {
            return Err(self.fault(position, "takes at least 1 tensor, found 0"));
        };
        let dtype = builder.dtype(first);
        match tensors.iter().find(|&&it| builder.dtype(it) != dtype) {
            Some(&other) => Err(self.fault(
                position,
                format!(
                    "the tensors must be of one type, found {dtype} and {}",
                    builder.dtype(other)
                ),
            )),
            None => Ok(tensors),
        }
    }

    pub(crate) fn number(&self, position: usize) -> Result<f64, CallDiagnostic> {
        self.given[position].as_number().ok_or_else(|| self.expected(position, "a number"))
    }

    /// Returns a number of this range.
    pub(crate) fn number_in(
        &self,
        position: usize,
        range: NumberRange,
    ) -> Result<f64, CallDiagnostic> {
        let number = self.number(position)?;
        range
            .check(self.row.arguments[position], number)
            .map_err(|message| self.fault(position, message))?;
        Ok(number)
    }

    pub(crate) fn integer(&self, position: usize) -> Result<i64, CallDiagnostic> {
        match self.given[position] {
            Argument::Integer(value) => self.number_of_elements(position, value),
            _ => Err(self.expected(position, "an integer")),
        }
    }

    /// Returns an integer that is no larger than extents are.
    fn number_of_elements(&self, position: usize, value: i64) -> Result<i64, CallDiagnostic> {
        if value.unsigned_abs() <= MAX_EXTENT as u64 {
            return Ok(value);
        }
        Err(self.fault(position, format!("integers are at most {MAX_EXTENT}, found {value}")))
    }

    /// Returns an integer of at least `least`.
    pub(crate) fn size(&self, position: usize, least: usize) -> Result<usize, CallDiagnostic> {
        let given = self.integer(position)?;
        let size = usize::try_from(given).ok().filter(|&it| it >= least);
        size.ok_or_else(|| self.expected_number(position, &format!("at least {least}"), given))
    }

    /// Returns a list of integers.
    pub(crate) fn integers(&self, position: usize) -> Result<Vec<i64>, CallDiagnostic> {
        let Argument::List(items) = &self.given[position] else {
            return Err(self.expected(position, "an array of integers"));
        };
        let integer = |item: &Argument| match item {
            Argument::Integer(value) => self.number_of_elements(position, *value),
            _ => Err(self.fault(
                position,
                format!("expected an array of integers, found {} in it", item.kind()),
            )),
        };
        items.iter().map(integer).collect()
    }

    pub(crate) fn text(&self, position: usize) -> Result<&'a str, CallDiagnostic> {
        match self.get(position) {
            Argument::Text(text) => Ok(text),
            _ => Err(self.expected(position, "a string")),
        }
    }

    pub(crate) fn boolean(&self, position: usize) -> Result<bool, CallDiagnostic> {
        match self.get(position) {
            Argument::Boolean(value) => Ok(*value),
            _ => Err(self.expected(position, "`true` or `false`")),
        }
    }

    /// Reads one dim of a tensor of this rank; negative ones count from the end.
    pub(crate) fn dim(&self, position: usize, rank: usize) -> Result<usize, CallDiagnostic> {
        self.resolve_dim(position, self.integer(position)?, rank)
    }

    fn resolve_dim(&self, position: usize, dim: i64, rank: usize) -> Result<usize, CallDiagnostic> {
        let signed_rank = i64::try_from(rank).expect("ranks are small");
        let resolved = if dim < 0 { dim + signed_rank } else { dim };
        let found = usize::try_from(resolved).ok().filter(|&it| it < rank);
        found.ok_or_else(|| {
            self.fault(position, format!("dim {dim} is out of range for a tensor of {rank} dims"))
        })
    }

    /// Dims of a tensor of this rank, in increasing order: `..`, one, or a list.
    pub(crate) fn dims(&self, position: usize, rank: usize) -> Result<Vec<usize>, CallDiagnostic> {
        let given = match self.get(position) {
            Argument::All => return Ok((0..rank).collect()),
            Argument::Integer(_) => vec![self.integer(position)?],
            Argument::List(_) => self.integers(position)?,
            _ => return Err(self.expected(position, "`..`, a dim, or an array of dims")),
        };
        if given.is_empty() {
            let fault = self.fault(position, "no dim to reduce is given");
            return Err(fault.with_help("`..` reduces all dims, as an empty list does in PyTorch"));
        }
        let resolve = |dim: i64| self.resolve_dim(position, dim, rank);
        let mut dims = given.into_iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        dims.sort_unstable();
        match dims.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(self.fault(position, format!("dim {} is given twice", pair[0]))),
            None => Ok(dims),
        }
    }
}
