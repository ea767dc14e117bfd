//! The properties of a model that continues texts, for the command line.

use std::fmt;

use soybean_runtime::data::Tokenizer;

/// A model that continues texts, for
/// [`Predictor::command_line_of_texts`](crate::Predictor::command_line_of_texts).
pub struct TextModel {
    /// The most tokens that the model's cache holds.
    pub capacity: usize,
    /// The tokens of texts, unless a flag names the file of a tokenizer. Without one, the flag is
    /// required.
    pub tokenizer: Option<Box<dyn Tokenizer>>,
    /// The names of the weights in files, as
    /// [`weights::Mapping`](soybean_runtime::weights::Mapping) reads them; may be empty.
    pub names: &'static str,
    /// How a text begins, unless flags say so.
    pub prompt: &'static str,
}

impl fmt::Debug for TextModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextModel")
            .field("capacity", &self.capacity)
            .field("prompt", &self.prompt)
            .finish_non_exhaustive()
    }
}
