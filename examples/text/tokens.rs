//! Texts as the tokens of a model: those of Hugging Face's `tokenizer.json`, or bytes.

use std::{error::Error, path::Path};

/// The translation of texts to tokens and back.
pub(crate) enum Tokens {
    /// Each byte of a text is a token.
    Bytes,
    /// A file of Hugging Face's `tokenizers`.
    #[cfg(feature = "tokenizers")]
    File(Box<tokenizers::Tokenizer>),
}

/// The names of tokens that end a text.
#[cfg(feature = "tokenizers")]
const ENDS: [&str; 4] = ["<|endoftext|>", "</s>", "<|end_of_text|>", "<|im_end|>"];

impl Tokens {
    /// Reads a `tokenizer.json`.
    #[cfg(feature = "tokenizers")]
    pub(crate) fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        match tokenizers::Tokenizer::from_file(path) {
            Ok(tokenizer) => Ok(Self::File(Box::new(tokenizer))),
            Err(error) => Err(format!("{}: {error}", path.display()).into()),
        }
    }

    /// Fails, because the crate that reads a `tokenizer.json` is no part of this program.
    #[cfg(not(feature = "tokenizers"))]
    pub(crate) fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let path = path.display();
        Err(format!("{path}: build with `--features tokenizers` to read tokenizers").into())
    }

    /// Returns the tokens of a text, with those that the model expects at its start.
    pub(crate) fn of(&self, text: &str) -> Result<Vec<i32>, Box<dyn Error>> {
        match self {
            Self::Bytes => Ok(text.bytes().map(i32::from).collect()),
            #[cfg(feature = "tokenizers")]
            Self::File(tokenizer) => {
                let encoding = tokenizer.encode(text, true).map_err(|it| it.to_string())?;
                Ok(encoding
                    .get_ids()
                    .iter()
                    .map(|it| i32::try_from(*it))
                    .collect::<Result<_, _>>()?)
            }
        }
    }

    /// Returns the text of tokens.
    pub(crate) fn text(&self, tokens: &[i32]) -> Result<String, Box<dyn Error>> {
        match self {
            Self::Bytes => {
                let bytes: Vec<u8> =
                    tokens.iter().map(|it| u8::try_from(*it)).collect::<Result<_, _>>()?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            #[cfg(feature = "tokenizers")]
            Self::File(tokenizer) => {
                let numbers: Vec<u32> =
                    tokens.iter().map(|it| u32::try_from(*it)).collect::<Result<_, _>>()?;
                Ok(tokenizer.decode(&numbers, true).map_err(|it| it.to_string())?)
            }
        }
    }

    /// Returns the token that ends a text, if there is one.
    pub(crate) fn end(&self) -> Option<i32> {
        match self {
            Self::Bytes => None,
            #[cfg(feature = "tokenizers")]
            Self::File(tokenizer) => {
                let number = ENDS.iter().find_map(|it| tokenizer.token_to_id(it))?;
                i32::try_from(number).ok()
            }
        }
    }
}
