//! The operators that users call: one table, each row built from the primitive operators.

mod activation;
mod arithmetic;
mod attention;
mod broadcast;
mod comparison;
mod convolution;
mod dropout;
mod einsum;
mod layout;
mod loss;
mod norm;
mod product;
mod reduction;

use soybean_plan::{DType, ScalarProgram, Shape};

use crate::{
    builder::{Argument, Builder},
    fault::Fault,
    gradient::add_elementwise,
    graph::Value,
    operators::elementwise::all_dims,
    signature::FactorId,
};

/// One operator of the surface.
pub(crate) struct Row {
    /// The method's name.
    pub(crate) name: &'static str,
    /// The names of its arguments; the first is the receiver.
    pub(crate) arguments: &'static [&'static str],
    /// Builds it.
    pub(crate) build: fn(&mut Builder, &Arguments<'_>) -> Result<Argument, Fault>,
    /// Calls by which conformance tests try it.
    pub(crate) samples: &'static [&'static [SampleArgument]],
}

/// All operators, family by family.
pub(crate) const TABLE: &[&[Row]] = &[
    arithmetic::TABLE,
    activation::TABLE,
    comparison::TABLE,
    product::TABLE,
    convolution::TABLE,
    einsum::TABLE,
    reduction::TABLE,
    norm::TABLE,
    dropout::TABLE,
    attention::TABLE,
    loss::TABLE,
    layout::TABLE,
];

/// The names of all operators that users can call.
#[must_use]
pub fn operator_names() -> Vec<&'static str> {
    TABLE.iter().flat_map(|family| family.iter()).map(|row| row.name).collect()
}

/// A call by which an operator is tried.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The operator's name.
    pub operator: &'static str,
    /// Its arguments; the first is the receiver.
    pub arguments: &'static [SampleArgument],
}

/// An argument of a [`Sample`].
#[derive(Clone, Copy, Debug)]
pub enum SampleArgument {
    /// A tensor of this shape, whose elements lie between the bounds.
    Tensor {
        /// The shape.
        shape: &'static [usize],
        /// The least value.
        low: f64,
        /// The greatest value.
        high: f64,
    },
    /// A buffer of this shape, whose elements lie between the bounds.
    Buffer {
        /// The shape.
        shape: &'static [usize],
        /// The least value.
        low: f64,
        /// The greatest value.
        high: f64,
    },
    /// Class labels of this shape.
    Labels {
        /// The shape.
        shape: &'static [usize],
        /// The number of classes.
        n_classes: usize,
    },
    /// An integer constant.
    Integer(i64),
    /// A number.
    Float(f64),
    /// An array of integers.
    List(&'static [i64]),
    /// A truth value.
    Boolean(bool),
    /// A string.
    Text(&'static str),
    /// `..`
    All,
}

impl SampleArgument {
    /// A tensor with elements between -2 and 2.
    const fn tensor(shape: &'static [usize]) -> Self {
        Self::Tensor { shape, low: -2.0, high: 2.0 }
    }

    /// A tensor with elements between 0.5 and 2.
    const fn positive(shape: &'static [usize]) -> Self {
        Self::Tensor { shape, low: 0.5, high: 2.0 }
    }
}

/// The calls by which conformance tests try every operator.
#[must_use]
pub fn operator_samples() -> Vec<Sample> {
    let rows = TABLE.iter().flat_map(|family| family.iter());
    rows.flat_map(|row| {
        row.samples.iter().map(|arguments| Sample { operator: row.name, arguments })
    })
    .collect()
}

/// The arguments of a call, with access that says what is wrong.
pub(crate) struct Arguments<'a> {
    row: &'a Row,
    given: &'a [Argument],
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(row: &'a Row, given: &'a [Argument]) -> Result<Self, Fault> {
        if given.len() == row.arguments.len() {
            return Ok(Self { row, given });
        }
        let form = format!("`{}({})`", row.name, row.arguments[1..].join(", "));
        let (expected, found) = (row.arguments.len() - 1, given.len().saturating_sub(1));
        Err(Fault::call(format!(
            "{form} takes {expected} argument{}, found {found}",
            if expected == 1 { "" } else { "s" }
        )))
    }

    /// A fault of one argument whose message begins with the operator's name.
    pub(crate) fn fault(&self, position: usize, message: impl std::fmt::Display) -> Fault {
        Fault::argument(position, format!("`{}`: {message}", self.row.name))
    }

    pub(crate) fn get(&self, position: usize) -> &'a Argument {
        &self.given[position]
    }

    fn expected(&self, position: usize, what: &str) -> Fault {
        let (argument, found) = (self.row.arguments[position], self.given[position].kind());
        self.fault(position, format!("`{argument}` must be {what}, found {found}"))
    }

    /// A fault of a number that is not of this kind.
    fn expected_number(&self, position: usize, what: &str, found: impl std::fmt::Display) -> Fault {
        let argument = self.row.arguments[position];
        self.fault(position, format!("`{argument}` must be {what}, found {found}"))
    }

    /// A tensor of `f32`.
    pub(crate) fn tensor(&self, builder: &Builder, position: usize) -> Result<Value, Fault> {
        let Argument::Tensor(value) = self.given[position] else {
            return Err(self.expected(position, "a tensor"));
        };
        match builder.dtype(value) {
            DType::F32 => Ok(value),
            DType::I32 => Err(self
                .fault(position, "takes tensors of f32, found i32")
                .with_help("only labels are i32")),
        }
    }

    pub(crate) fn number(&self, position: usize) -> Result<f64, Fault> {
        self.given[position].as_number().ok_or_else(|| self.expected(position, "a number"))
    }

    pub(crate) fn integer(&self, position: usize) -> Result<i64, Fault> {
        match self.given[position] {
            Argument::Integer(value) => Ok(value),
            _ => Err(self.expected(position, "an integer")),
        }
    }

    /// A list of integers.
    pub(crate) fn integers(&self, position: usize) -> Result<Vec<i64>, Fault> {
        let Argument::List(items) = &self.given[position] else {
            return Err(self.expected(position, "an array of integers"));
        };
        let integer = |item: &Argument| match item {
            Argument::Integer(value) => Ok(*value),
            _ => Err(self.fault(
                position,
                format!("expected an array of integers, found {} in it", item.kind()),
            )),
        };
        items.iter().map(integer).collect()
    }

    pub(crate) fn text(&self, position: usize) -> Result<&'a str, Fault> {
        match self.get(position) {
            Argument::Text(text) => Ok(text),
            _ => Err(self.expected(position, "a string")),
        }
    }

    pub(crate) fn boolean(&self, position: usize) -> Result<bool, Fault> {
        match self.get(position) {
            Argument::Boolean(value) => Ok(*value),
            _ => Err(self.expected(position, "`true` or `false`")),
        }
    }

    /// One dim of a tensor of this rank; negative ones count from the end.
    pub(crate) fn dim(&self, position: usize, rank: usize) -> Result<usize, Fault> {
        self.resolve_dim(position, self.integer(position)?, rank)
    }

    fn resolve_dim(&self, position: usize, dim: i64, rank: usize) -> Result<usize, Fault> {
        let signed_rank = i64::try_from(rank).expect("ranks are small");
        let resolved = if dim < 0 { dim + signed_rank } else { dim };
        let found = usize::try_from(resolved).ok().filter(|&it| it < rank);
        found.ok_or_else(|| {
            self.fault(position, format!("dim {dim} is out of range for a tensor of {rank} dims"))
        })
    }

    /// Dims of a tensor of this rank, in increasing order: `..`, one, or a list.
    pub(crate) fn dims(&self, position: usize, rank: usize) -> Result<Vec<usize>, Fault> {
        let given = match self.get(position) {
            Argument::All => return Ok((0..rank).collect()),
            Argument::Integer(dim) => vec![*dim],
            Argument::List(_) => self.integers(position)?,
            _ => return Err(self.expected(position, "`..`, a dim, or an array of dims")),
        };
        let resolve = |dim: i64| self.resolve_dim(position, dim, rank);
        let mut dims = given.into_iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        dims.sort_unstable();
        match dims.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(self.fault(position, format!("dim {} is given twice", pair[0]))),
            None => Ok(dims),
        }
    }
}

/// Adds a map over operands that each have all dims of the shape, or those in its list.
pub(crate) fn map(
    builder: &mut Builder,
    extents: Shape,
    operands: &[(Value, Vec<FactorId>)],
    program: &ScalarProgram,
) -> Value {
    let (values, ids): (Vec<Value>, Vec<Vec<FactorId>>) = operands.iter().cloned().unzip();
    add_elementwise(&mut builder.graph, extents, &ids, program, &values)
}

/// Adds a map of one operand.
pub(crate) fn map_one(builder: &mut Builder, value: Value, program: &ScalarProgram) -> Value {
    let shape = builder.shape(value);
    map(builder, shape, &[(value, all_dims(&shape))], program)
}
