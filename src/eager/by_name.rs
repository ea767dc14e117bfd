//! Operators by name, so that tests can compare every operator of the compiler's list with its eager form.

use super::{Dims, Tensor};

/// An argument of an operator; argument 0 is the receiver.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A tensor.
    Tensor(Tensor),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// An array of integers.
    List(Vec<i64>),
    /// `..`
    All,
}

/// Calls the operator of this name.
///
/// # Panics
/// If there is no such operator, or the arguments do not fit it.
#[must_use]
pub fn call(name: &str, arguments: &[Argument]) -> Tensor {
    let operator = OPERATORS.iter().find(|operator| operator.0 == name);
    let (name, function) = operator.unwrap_or_else(|| panic!("no eager operator `{name}`"));
    function(&Arguments { name, list: arguments })
}

/// The names that [`call`] knows.
#[must_use]
pub fn operator_names() -> Vec<&'static str> {
    OPERATORS.iter().map(|operator| operator.0).collect()
}

/// An operator: its name, and how its arguments reach the method of that name.
type Operator = (&'static str, fn(&Arguments<'_>) -> Tensor);

const OPERATORS: &[Operator] = &[
    ("matmul", |it| it.tensor(0).matmul(it.tensor(1))),
    ("add", |it| it.tensor(0) + it.tensor(1)),
    ("sub", |it| it.tensor(0) - it.tensor(1)),
    ("mul", |it| it.tensor(0) * it.tensor(1)),
    ("div", |it| it.tensor(0) / it.tensor(1)),
    ("neg", |it| -it.tensor(0)),
    ("relu", |it| it.tensor(0).relu()),
    ("leaky_relu", |it| it.tensor(0).leaky_relu(it.number(1))),
    ("tanh", |it| it.tensor(0).tanh()),
    ("sigmoid", |it| it.tensor(0).sigmoid()),
    ("gelu", |it| it.tensor(0).gelu()),
    ("gelu_tanh", |it| it.tensor(0).gelu_tanh()),
    ("silu", |it| it.tensor(0).silu()),
    ("exp", |it| it.tensor(0).exp()),
    ("log", |it| it.tensor(0).log()),
    ("sqrt", |it| it.tensor(0).sqrt()),
    ("powi", |it| it.tensor(0).powi(it.exponent(1))),
    ("sum", |it| it.tensor(0).sum(it.dims(1))),
    ("mean", |it| it.tensor(0).mean(it.dims(1))),
    ("max", |it| it.tensor(0).max(it.dims(1))),
    ("softmax", |it| it.tensor(0).softmax(it.integer(1))),
    ("log_softmax", |it| it.tensor(0).log_softmax(it.integer(1))),
    ("cross_entropy", |it| it.tensor(0).cross_entropy(it.tensor(1))),
    ("mse", |it| it.tensor(0).mse(it.tensor(1))),
    ("reshape", |it| it.tensor(0).reshaped(&it.extents(1))),
    ("flatten", |it| it.tensor(0).flatten()),
    ("transpose", |it| it.tensor(0).transpose()),
    ("permute", |it| it.tensor(0).permuted(&it.extents(1))),
    ("detach", |it| it.tensor(0).detach()),
];

struct Arguments<'a> {
    name: &'a str,
    list: &'a [Argument],
}

impl Arguments<'_> {
    /// A tensor, or a number as a scalar.
    fn tensor(&self, position: usize) -> Tensor {
        match self.list.get(position) {
            Some(Argument::Tensor(tensor)) => *tensor,
            _ => Tensor::scalar(self.number(position)),
        }
    }

    fn number(&self, position: usize) -> f64 {
        match self.list.get(position) {
            Some(Argument::Float(number)) => *number,
            Some(Argument::Integer(number)) => *number as f64,
            other => self.refuse(position, "a number", other),
        }
    }

    fn integer(&self, position: usize) -> i64 {
        match self.list.get(position) {
            Some(Argument::Integer(number)) => *number,
            other => self.refuse(position, "an integer", other),
        }
    }

    fn exponent(&self, position: usize) -> i32 {
        i32::try_from(self.integer(position)).expect("exponents are 32-bit integers")
    }

    fn extents(&self, position: usize) -> Vec<usize> {
        match self.list.get(position) {
            Some(Argument::List(numbers)) => numbers.iter().map(|it| extent(*it)).collect(),
            other => self.refuse(position, "an array of integers", other),
        }
    }

    fn dims(&self, position: usize) -> AnyDims<'_> {
        match self.list.get(position) {
            Some(Argument::All) => AnyDims::All,
            Some(Argument::Integer(dim)) => AnyDims::Some(std::slice::from_ref(dim)),
            Some(Argument::List(dims)) => AnyDims::Some(dims),
            other => self.refuse(position, "dims", other),
        }
    }

    fn refuse(&self, position: usize, wanted: &str, found: Option<&Argument>) -> ! {
        panic!("`{}`: argument {position} is {wanted}, found {found:?}", self.name)
    }
}

fn extent(number: i64) -> usize {
    usize::try_from(number).expect("extents and orders of dims are not negative")
}

enum AnyDims<'a> {
    All,
    Some(&'a [i64]),
}

impl Dims for AnyDims<'_> {
    fn mask(self, operator: &str, rank: usize) -> Vec<bool> {
        match self {
            Self::All => (..).mask(operator, rank),
            Self::Some(dims) => dims.mask(operator, rank),
        }
    }
}
