//! Samples: calls by which operators are tried.

use super::attention::score::SCORE_INPUTS;
use crate::builder::{Argument, Builder};

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
    /// A tensor of this shape, with elements between the bounds.
    Tensor {
        /// The shape.
        shape: &'static [usize],
        /// The least value.
        low: f64,
        /// The greatest value.
        high: f64,
    },
    /// A buffer of this shape, with elements between the bounds.
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
    /// An array of tensors or labels.
    Array(&'static [SampleArgument]),
    /// A function of scores.
    Function(SampleFunction),
    /// `..`
    All,
}

/// A function of the score, the head and the positions of query and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleFunction {
    /// `score - (query - key) / (head + 2)`; keys at an odd distance from the query are hidden.
    LinearBias,
    /// `2 tanh(score / 2)`; queries see the keys of earlier blocks of 4 positions, so those of the
    /// first block see none.
    SoftCap,
}

impl SampleFunction {
    /// Adds the calls of the function and returns its result.
    ///
    /// # Panics
    /// Never: the calls have no faults.
    pub fn build(self, builder: &mut Builder) -> Argument {
        let mut call = |name: &str, arguments: &[&Argument]| {
            let arguments: Vec<Argument> = arguments.iter().map(|it| (*it).clone()).collect();
            builder.call(name, &arguments).expect("the calls have no faults")
        };
        let Argument::List(inputs) = call(SCORE_INPUTS, &[]) else {
            unreachable!("there are four inputs")
        };
        let [score, head, query, key] = &inputs[..] else { unreachable!("there are four inputs") };
        let (changed, is_seen) = match self {
            Self::LinearBias => {
                let distance = call("sub", &[query, key]);
                let [head, length] = [head, &distance].map(|it| call("to_f32", &[it]));
                let divisor = call("add", &[&head, &Argument::Float(2.0)]);
                let bias = call("div", &[&length, &divisor]);
                let rest = call("remainder", &[&distance, &Argument::Integer(2)]);
                (call("sub", &[score, &bias]), call("eq", &[&rest, &Argument::Integer(0)]))
            }
            Self::SoftCap => {
                let two = Argument::Float(2.0);
                let half = call("div", &[score, &two]);
                let tanh = call("tanh", &[&half]);
                let blocks =
                    [query, key].map(|it| call("floor_divide", &[it, &Argument::Integer(4)]));
                (call("mul", &[&tanh, &two]), call("lt", &[&blocks[1], &blocks[0]]))
            }
        };
        call("where_", &[&changed, &is_seen, &Argument::Float(f64::NEG_INFINITY)])
    }
}

impl SampleArgument {
    /// Returns a tensor with elements between -2 and 2.
    pub(super) const fn tensor(shape: &'static [usize]) -> Self {
        Self::Tensor { shape, low: -2.0, high: 2.0 }
    }

    /// Returns a tensor with elements between 0.5 and 2.
    pub(super) const fn positive(shape: &'static [usize]) -> Self {
        Self::Tensor { shape, low: 0.5, high: 2.0 }
    }
}
