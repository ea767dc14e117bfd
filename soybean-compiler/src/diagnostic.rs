//! Diagnostics: the mistakes in a user's model, each with the part of the model that is wrong.

use crate::value::Value;

/// A mistake in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallDiagnostic {
    /// The part of the call that is wrong.
    pub at: CallPart,
    /// The requirement, then what was found.
    pub message: String,
    /// A way to correct it.
    pub help: Option<String>,
}

/// A part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPart {
    /// The call as a whole, or its name.
    Call,
    /// This argument; 0 is the receiver.
    Argument(usize),
}

impl CallDiagnostic {
    /// Returns a diagnostic of the call as a whole.
    #[must_use]
    pub fn call(message: String) -> Self {
        Self { at: CallPart::Call, message, help: None }
    }

    /// Returns a diagnostic of one argument.
    #[must_use]
    pub fn argument(argument: usize, message: String) -> Self {
        Self { at: CallPart::Argument(argument), message, help: None }
    }

    /// Adds a way to correct the mistake.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// A mistake in a model as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDiagnostic {
    /// The part of the model that is wrong.
    pub at: ModelPart,
    /// The requirement, then what was found.
    pub message: String,
    /// A way to correct it.
    pub help: Option<String>,
}

/// A part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelPart {
    /// An input, a parameter or a state.
    Value(Value),
    /// The pin of a tensor's tiling.
    Pin(Value),
    /// The loss.
    Loss,
    /// The number of GPUs.
    Gpus,
    /// The memory of each GPU.
    Memory,
    /// The pattern with this number in the optimizer's setting `no_decay`.
    NoDecay(usize),
    /// The group of parameters with this number.
    Group(usize),
    /// The pattern with this number in the setting `freeze`.
    Freeze(usize),
    /// The pattern with this number in the setting `input_gradients`.
    InputGradient(usize),
    /// The entry of this number, as the attribute names it.
    Entry(usize),
    /// The setting of updates with this name.
    Setting(&'static str),
}
