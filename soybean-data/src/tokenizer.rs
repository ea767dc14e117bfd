//! Texts as numbered tokens, and files of tokens made of files of text.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, BufWriter, Read, Write},
    path::Path,
};

use soybean_plan::fingerprint;

use crate::{
    Error, TokenWidth,
    file::{named, open, read_json},
    token_origin::{TokenOrigin, beside},
};

/// The limit for the bytes of a line.
const MAX_LINE_BYTES: u64 = 1 << 24;

/// A numbering of the tokens of texts.
pub trait Tokenizer {
    /// Returns the number of different tokens; all are below it.
    fn vocabulary(&self) -> usize;

    /// Returns the tokens of a text.
    ///
    /// # Errors
    /// A message if a part of the text is no token.
    fn encode(&self, text: &str) -> Result<Vec<u32>, String>;

    /// Returns the text of tokens. A part that is no text, such as the first bytes of a character,
    /// becomes U+FFFD.
    ///
    /// # Errors
    /// A message if there is no such token.
    fn decode(&self, tokens: &[u32]) -> Result<String, String>;

    /// Returns the token that stands after each text in a file of tokens, if there is one.
    fn end(&self) -> Option<u32> {
        None
    }

    /// Returns all tokens after which a model's text ends; that of [`end`](Self::end) by default.
    /// Models of chats have further ones, after which a turn ends.
    fn ends(&self) -> Vec<u32> {
        self.end().into_iter().collect()
    }

    /// Returns the number of a token, if there is one of this text.
    fn number_of(&self, token: &str) -> Option<u32> {
        match self.encode(token).ok()?[..] {
            [number] => Some(number),
            _ => None,
        }
    }

    /// Returns a hash, by which a run notices that texts have other tokens. By default it is that
    /// of the texts of all tokens.
    fn fingerprint(&self) -> u64 {
        let n_tokens = u32::try_from(self.vocabulary()).unwrap_or(u32::MAX);
        let text = |token: u32| self.decode(&[token]).unwrap_or_default();
        // No text has the byte 255.
        fingerprint((0..n_tokens).flat_map(|it| text(it).into_bytes().into_iter().chain([255])))
    }
}

/// The tokens that the post-processor of a `tokenizer.json` adds to a text, such as `<s>` before
/// it and `</s>` after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpecialTokens {
    /// All of them, as Hugging Face's tokenizers do.
    #[default]
    All,
    /// Those before the text, as a prompt needs that is continued.
    Start,
    /// None of them.
    None,
}

/// The bytes of a text in UTF-8 as its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteTokenizer;

impl Tokenizer for ByteTokenizer {
    fn vocabulary(&self) -> usize {
        256
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        let byte = |it: &u32| u8::try_from(*it).map_err(|_| unknown(*it, 256));
        let bytes = tokens.iter().map(byte).collect::<Result<Vec<u8>, String>>()?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A list of strings, the tokens. A text is divided from its start: each token is the longest of
/// the list with which the rest begins.
///
/// ```
/// use soybean_data::{Tokenizer, Vocabulary};
///
/// let letters = Vocabulary::of_characters("hello");
/// assert_eq!(letters.tokens(), ["e", "h", "l", "o"]);
/// let words = Vocabulary::new(["he", "h", "llo", "o"])?;
/// assert_eq!(words.encode("hello"), Ok(vec![0, 2]));
/// assert_eq!(words.decode(&[1, 3]), Ok("ho".to_owned()));
/// # Ok::<(), soybean_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    tokens: Vec<String>,
    numbers: BTreeMap<String, u32>,
    /// The bytes of the longest token.
    longest: usize,
}

impl Vocabulary {
    /// Numbers these tokens from 0.
    ///
    /// # Errors
    /// If there is no token, one is empty, or two are alike.
    pub fn new(tokens: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Error> {
        let tokens: Vec<String> = tokens.into_iter().map(Into::into).collect();
        let mut numbers = BTreeMap::new();
        for (number, token) in (0..).zip(&tokens) {
            if token.is_empty() || numbers.insert(token.clone(), number).is_some() {
                return Err(Error::data(format!(
                    "token {number}: expected text that no other token has, found {token:?}"
                )));
            }
        }
        if tokens.is_empty() {
            return Err(Error::data("expected at least one token, found none"));
        }
        let longest = tokens.iter().map(String::len).max().unwrap_or(0);
        Ok(Self { tokens, numbers, longest })
    }

    /// Returns the characters of a text as tokens, in the order of their codes.
    ///
    /// # Panics
    /// If the text is empty.
    #[must_use]
    pub fn of_characters(text: &str) -> Self {
        let characters: std::collections::BTreeSet<char> = text.chars().collect();
        Self::new(characters).expect("the text has characters, each once in a set")
    }

    /// Reads a file of JSON with an array of strings, which are the tokens.
    ///
    /// # Errors
    /// If the file cannot be read, has other contents, or two tokens are alike.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let value = read_json(path)?;
        let strings = value.as_array().and_then(|array| {
            array.iter().map(|it| it.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        let strings =
            strings.ok_or_else(|| named(path, "expected an array of strings, found other JSON"))?;
        Self::new(strings).map_err(|error| named(path, &error.to_string()))
    }

    /// Writes the tokens to a file, which [`open`](Self::open) reads.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let (path, text) = (path.as_ref(), serde_json::json!(self.tokens));
        fs::write(path, format!("{text}\n")).map_err(|error| unwritable(path, &error))
    }

    /// Returns the tokens in the order of their numbers.
    #[must_use]
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }
}

impl Tokenizer for Vocabulary {
    fn vocabulary(&self) -> usize {
        self.tokens.len()
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let (mut tokens, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let ends = (1..=self.longest.min(rest.len())).rev();
            let found = ends
                .filter_map(|end| rest.get(..end))
                .find_map(|it| self.numbers.get(it).map(|number| (*number, it.len())));
            let (number, n_bytes) = found.ok_or_else(|| {
                let start: String = rest.chars().take(8).collect();
                let place = text.len() - rest.len();
                format!("byte {place}: expected a token of the vocabulary, found {start:?}")
            })?;
            tokens.push(number);
            rest = &rest[n_bytes..];
        }
        Ok(tokens)
    }

    fn decode(&self, tokens: &[u32]) -> Result<String, String> {
        let token = |it: &u32| {
            let token = usize::try_from(*it).ok().and_then(|it| self.tokens.get(it));
            token.map(String::as_str).ok_or_else(|| unknown(*it, self.tokens.len()))
        };
        tokens.iter().map(token).collect()
    }
}

fn unknown(token: u32, vocabulary: usize) -> String {
    format!("expected a token in 0..{vocabulary}, found {token}")
}

/// Writes the tokens of a file of text, plain or compressed with gzip, to a file that
/// [`Tokens::open`](crate::Tokens::open) reads. Returns the number of tokens.
///
/// Each line is encoded alone, with its end. The file gets its name when it is complete.
///
/// # Errors
/// - If a file cannot be read or written, or the text is not UTF-8.
/// - If a line has more than 16 MiB, or a part of it is no token.
/// - If the vocabulary has more tokens than the width has numbers.
pub fn tokenize_file(
    text: impl AsRef<Path>,
    tokens: impl AsRef<Path>,
    width: TokenWidth,
    tokenizer: &impl Tokenizer,
) -> Result<u64, Error> {
    write_tokens(tokens.as_ref(), width, tokenizer, None, |function| {
        each_line(text.as_ref(), function)
    })
}

/// The texts of a field, in a file with a text in each row.
///
/// ```
/// use soybean_data::{ByteTokenizer, TextField, TokenWidth, tokenize_json_lines};
///
/// # let folder = std::env::temp_dir().join(format!("soybean-texts-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let (texts, tokens) = (folder.join("texts.jsonl"), folder.join("texts.u16"));
/// std::fs::write(&texts, "{\"text\": \"one\"}\n{\"text\": \"two\", \"year\": 1999}\n").unwrap();
/// let field = TextField { name: "text", end: Some(0) };
/// let n_tokens = tokenize_json_lines(&texts, field, &tokens, TokenWidth::U16, &ByteTokenizer)?;
/// assert_eq!(n_tokens, 8);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), soybean_data::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextField<'a> {
    /// The name of the field.
    pub name: &'a str,
    /// The token that is written after each text, if there is one.
    pub end: Option<u32>,
}

/// A function that takes a text.
pub(super) type TextFunction<'a> = &'a mut dyn FnMut(&str) -> Result<(), String>;

/// Writes the tokens of texts to a file, each text followed by the token `end`. The function
/// `each_text` calls another one with each text. Returns the number of tokens.
pub(super) fn write_tokens(
    path: &Path,
    width: TokenWidth,
    tokenizer: &impl Tokenizer,
    end: Option<u32>,
    each_text: impl FnOnce(TextFunction<'_>) -> Result<(), Error>,
) -> Result<u64, Error> {
    let (n_tokens, most) = (tokenizer.vocabulary() as u64, 1 << (8 * width.n_bytes()));
    if n_tokens > most {
        return Err(Error::data(format!(
            "expected a vocabulary of at most {most} tokens for {width:?}, found {n_tokens}"
        )));
    }
    if let Some(end) = end.filter(|it| u64::from(*it) >= n_tokens) {
        let message = format!("expected a token in 0..{n_tokens} for the end, found {end}");
        return Err(Error::data(message));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let to_error = |error: std::io::Error| unwritable(path, &error);
    let mut writer = BufWriter::new(File::create(&partial).map_err(to_error)?);
    let mut n_written = 0;
    let outcome = each_text(&mut |text| {
        for token in tokenizer.encode(text)?.into_iter().chain(end) {
            if u64::from(token) >= n_tokens {
                return Err(format!("expected tokens in 0..{n_tokens}, found {token}"));
            }
            let bytes = token.to_le_bytes();
            writer.write_all(&bytes[..width.n_bytes()]).map_err(|it| to_error(it).to_string())?;
            n_written += 1;
        }
        Ok(())
    });
    let outcome = outcome.and_then(|()| {
        writer.into_inner().map_err(|error| to_error(error.into_error()))?;
        let n_bytes = n_written * width.n_bytes() as u64;
        let origin = TokenOrigin { tokenizer: tokenizer.fingerprint(), n_bytes };
        fs::write(beside(path), origin.to_text()).map_err(to_error)?;
        fs::rename(&partial, path).map_err(to_error)
    });
    if outcome.is_err() {
        // The error is more important than a file that remains.
        let _ = fs::remove_file(&partial);
    }
    outcome.map(|()| n_written)
}

/// Calls a function with each line of a file, with its end. Errors name the file and the line.
pub(super) fn each_line(path: &Path, function: TextFunction<'_>) -> Result<(), Error> {
    let mut reader = BufReader::new(open(path)?);
    let mut line = Vec::new();
    for number in 1_u64.. {
        let at = |message: String| named(path, &format!("line {number}: {message}"));
        line.clear();
        let mut limited = reader.by_ref().take(MAX_LINE_BYTES + 1);
        let n_read = limited
            .read_until(b'\n', &mut line)
            .map_err(|error| at(format!("expected more data or the end, found: {error}")))?;
        if n_read == 0 {
            break;
        }
        if n_read as u64 > MAX_LINE_BYTES {
            return Err(at(format!("expected at most {MAX_LINE_BYTES} bytes, found more")));
        }
        let text = std::str::from_utf8(&line)
            .map_err(|error| at(format!("expected UTF-8 text, found: {error}")))?;
        function(text).map_err(at)?;
    }
    Ok(())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    named(path, &format!("expected a file that can be written, found: {error}"))
}
