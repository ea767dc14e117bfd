//! The tokenizers of published models, from files of Hugging Face's `tokenizers`.

mod ends;

use std::{
    fmt,
    path::{Path, PathBuf},
};

use soybean_plan::{caught, fingerprint};
use tokenizers::models::ModelWrapper;

use crate::{
    Error, SpecialTokens, Tokenizer,
    file::{MAX_JSON_BYTES, guarded, named, read_whole, unreadable_by},
};

/// A `tokenizer.json`, with the ends of texts of the files in its folder.
///
/// Texts are encoded as a whole: truncation, padding and the dropout of merges, which such files
/// may ask for, are off. [`SpecialTokens`] chooses the tokens that the file adds to a text.
///
/// The ends of texts are those that `generation_config.json` and `config.json` list, the
/// `eos_token` of `tokenizer_config.json`, and the token that ends a turn in the template of chats.
/// Special tokens of the file with well-known names are ends, too, such as `<|endoftext|>`,
/// `<|eot_id|>` and `<end_of_turn>`.
pub struct TokenizerFile {
    tokenizer: Box<tokenizers::Tokenizer>,
    path: PathBuf,
    special_tokens: SpecialTokens,
    vocabulary: usize,
    ends: Vec<u32>,
    /// The hash of the file.
    fingerprint: u64,
}

impl TokenizerFile {
    /// Reads a file, and beside it the files that say how texts end, if they are there.
    ///
    /// # Errors
    /// If a file cannot be read or is not of a tokenizer.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let bytes = read_whole(path, MAX_JSON_BYTES)?;
        let mut tokenizer = guarded(path, || read(&bytes).map_err(|it| named(path, &it)))?;
        guarded(path, || whole_texts(&mut tokenizer).map_err(|it| named(path, &it)))?;
        let numbers = guarded(path, || Ok(tokenizer.get_vocab(true)))?;
        let vocabulary = numbers.into_values().max().map_or(0, |it| it as usize + 1);
        let ends = ends::ends(path, &tokenizer)?;
        let tokenizer = Box::new(tokenizer);
        let (path, special_tokens) = (path.to_owned(), SpecialTokens::default());
        let fingerprint = fingerprint(bytes);
        Ok(Self { tokenizer, path, special_tokens, vocabulary, ends, fingerprint })
    }

    /// Chooses the tokens that are added to each text; all by default.
    #[must_use]
    pub const fn with_special_tokens(mut self, special_tokens: SpecialTokens) -> Self {
        self.special_tokens = special_tokens;
        self
    }

    /// Calls the tokenizer. Its panic is an error that names the file.
    fn call<T>(&self, function: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
        let outcome = caught(function).map_err(|panic| {
            let path = self.path.display();
            format!("{path}: {}", unreadable_by(&panic))
        })?;
        outcome.map_err(|error| error.to_string())
    }
}

fn read(bytes: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    tokenizers::Tokenizer::from_bytes(bytes)
        .map_err(|error| format!("expected a tokenizer, found: {error}"))
}

/// Lets a tokenizer encode whole texts, the same one always alike.
fn whole_texts(tokenizer: &mut tokenizers::Tokenizer) -> Result<(), String> {
    tokenizer.with_padding(None).with_truncation(None).map_err(|error| error.to_string())?;
    if let ModelWrapper::BPE(model) = tokenizer.get_model()
        && model.dropout.is_some()
    {
        let mut model = model.clone();
        model.dropout = None;
        tokenizer.with_model(model);
    }
    Ok(())
}

impl Tokenizer for TokenizerFile {
    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let adds = self.special_tokens != SpecialTokens::None;
        let encoding = self.call(|| self.tokenizer.encode(text, adds))?;
        let mut tokens = encoding.get_ids().to_vec();
        if self.special_tokens == SpecialTokens::Start {
            let is_added = |it: &&u32| **it == 1;
            let mask = encoding.get_special_tokens_mask();
            let n_added = mask.iter().rev().take_while(is_added).count();
            let is_end = |it: &mut u32| self.ends.contains(it);
            match n_added < tokens.len() {
                true => tokens.truncate(tokens.len() - n_added),
                // Nothing of the text tells what is added before it.
                false => while tokens.pop_if(is_end).is_some() {},
            }
        }
        Ok(tokens)
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        self.call(|| self.tokenizer.decode(tokens, true))
    }

    fn end(&self) -> Option<u32> {
        self.ends.first().copied()
    }

    fn ends(&self) -> Vec<u32> {
        self.ends.clone()
    }

    fn number_of(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    fn fingerprint(&self) -> u64 {
        let choice = self.special_tokens as u8;
        fingerprint(self.fingerprint.to_le_bytes().into_iter().chain([choice]))
    }
}

impl fmt::Debug for TokenizerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenizerFile")
            .field("path", &self.path)
            .field("special_tokens", &self.special_tokens)
            .field("vocabulary", &self.vocabulary)
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}
