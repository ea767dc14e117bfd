//! Faults: what is wrong with a model, and where.

use crate::value::Value;

/// What is wrong with one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The part of the call that is wrong.
    pub at: Place,
    /// What is required and what was found.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// A part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The call as a whole, or its name.
    Call,
    /// This argument; 0 is the receiver.
    Argument(usize),
}

impl Fault {
    /// A fault of the call as a whole.
    #[must_use]
    pub fn call(message: String) -> Self {
        Self { at: Place::Call, message, help: None }
    }

    /// A fault of one argument.
    #[must_use]
    pub fn argument(argument: usize, message: String) -> Self {
        Self { at: Place::Argument(argument), message, help: None }
    }

    /// The fault with advice.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// What is wrong with a model as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFault {
    /// The part of the model that is wrong.
    pub at: At,
    /// What is required and what was found.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// A part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// An input or parameter.
    Value(Value),
    /// Where a tensor's tiling was pinned.
    Pin(Value),
    /// The loss.
    Loss,
    /// The number of GPUs.
    Gpus,
    /// The memory that each GPU has.
    Memory,
    /// The pattern with this number in the optimiser's setting `no_decay`.
    NoDecay(usize),
}
