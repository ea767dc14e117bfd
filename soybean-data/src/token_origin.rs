//! The file beside a file of tokens that says of which tokenizer they are.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    Error,
    file::{named, unreadable},
};

/// The origin of a file of tokens.
pub(super) struct TokenOrigin {
    /// The fingerprint of the tokenizer.
    pub(super) tokenizer: u64,
    /// The bytes of the file of tokens, which must not have changed.
    pub(super) n_bytes: u64,
}

impl TokenOrigin {
    /// Reads the origin of a file of tokens, if there is one.
    ///
    /// # Errors
    /// If it cannot be read, or is of a file of another length.
    pub(super) fn read(tokens: &Path, n_bytes: u64) -> Result<Option<Self>, Error> {
        let path = beside(tokens);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&path, &error)),
        };
        let value: Value = serde_json::from_slice(&text).unwrap_or_default();
        let tokenizer = value["tokenizer"].as_str().and_then(|it| u64::from_str_radix(it, 16).ok());
        let origin = tokenizer.zip(value["bytes"].as_u64());
        match origin.map(|(tokenizer, n_bytes)| Self { tokenizer, n_bytes }) {
            Some(origin) if origin.n_bytes == n_bytes => Ok(Some(origin)),
            Some(Self { n_bytes: expected, .. }) => {
                let message = format!(
                    "is of {expected} bytes of tokens, found {n_bytes}: tokenize the text again, or \
                     remove this file if the tokens are of another program"
                );
                Err(named(&path, &message))
            }
            None => {
                Err(named(&path, "expected the tokenizer of a file of tokens, found other text"))
            }
        }
    }

    /// Returns the text of the file.
    pub(super) fn to_text(&self) -> String {
        let tokenizer = format!("{:016x}", self.tokenizer);
        json!({ "tokenizer": tokenizer, "bytes": self.n_bytes }).to_string() + "\n"
    }
}

/// Returns the path of the origin of a file of tokens.
pub(super) fn beside(tokens: &Path) -> PathBuf {
    let mut name = tokens.as_os_str().to_owned();
    name.push(".json");
    name.into()
}
