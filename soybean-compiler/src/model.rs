//! The input of a compilation: what a builder made, and its results.

use crate::{builder::Builder, value::Value};

/// A model: a built graph, with the tensors that are its results.
#[derive(Clone, Debug)]
pub struct Model<'a> {
    /// The graph, with all that was said of it.
    pub builder: Builder,
    /// The scalar that is minimized; `None` in inference, and if the builder's entries have losses.
    pub loss: Option<Value>,
    /// The further outputs, by name.
    pub outputs: &'a [(String, Value)],
}
