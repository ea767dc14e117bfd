//! The tokenizers of published models, from files of Hugging Face's `tokenizers`.

use std::{fmt, path::Path};

use crate::{Error, Tokenizer, file::named};

/// The names of tokens that end a text.
const ENDS: [&str; 4] = ["<|endoftext|>", "</s>", "<|end_of_text|>", "<|im_end|>"];

/// A `tokenizer.json`. Texts begin with the tokens that its model expects there.
pub struct TokenizerFile(Box<tokenizers::Tokenizer>);

impl TokenizerFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read or is not of a tokenizer.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let tokenizer = tokenizers::Tokenizer::from_file(path);
        let to_error = |error| named(path, &format!("expected a tokenizer, found: {error}"));
        Ok(Self(Box::new(tokenizer.map_err(to_error)?)))
    }
}

impl Tokenizer for TokenizerFile {
    fn vocabulary(&self) -> usize {
        self.0.get_vocab_size(true)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoding = self.0.encode(text, true).map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().to_vec())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        self.0.decode(tokens, true).map_err(|error| error.to_string())
    }

    fn end(&self) -> Option<u32> {
        ENDS.iter().find_map(|it| self.0.token_to_id(it))
    }
}

impl fmt::Debug for TokenizerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenizerFile").field("vocabulary", &self.vocabulary()).finish()
    }
}
