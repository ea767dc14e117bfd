//! Tokenized text in windows, with the next token of each token as the target.

use std::{fmt, path::Path};

use soybean_plan::DType;

use crate::{
    ColumnSpec, Dataset, Error, Numbering, Tokenizer, ViewMut, positioned::PositionedFile,
    token_origin::TokenOrigin,
};

/// A text of numbered tokens, one window for each row. Column 0, `tokens`, has the tokens of the
/// window. Column 1, `next`, has the token that follows each of them.
pub struct Tokens {
    source: Source,
    spec: TokenSpec,
    n_windows: usize,
    columns: [ColumnSpec; 2],
    /// The fingerprint of the tokenizer, where it is known.
    tokenizer: Option<u64>,
}

/// The division of a text into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenSpec {
    /// The number of tokens in a window.
    pub length: usize,
    /// The number of tokens between the starts of consecutive windows. With `length`, windows do
    /// not overlap.
    pub stride: usize,
    /// The number of different tokens; all must be in `0..vocabulary`.
    pub vocabulary: usize,
}

/// The size of a token in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenWidth {
    /// Unsigned integers of 16 bits, little-endian.
    U16,
    /// Unsigned integers of 32 bits, little-endian.
    U32,
}

enum Source {
    Memory(Vec<i32>),
    File(PositionedFile, TokenWidth),
}

impl TokenWidth {
    pub(super) const fn n_bytes(self) -> usize {
        match self {
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }
}

impl Tokens {
    /// Creates a dataset from a text in memory.
    ///
    /// # Errors
    /// If a window or the stride has no token, the text is too short for one window, or a token is
    /// not in the vocabulary.
    pub fn new(text: Vec<i32>, spec: TokenSpec) -> Result<Self, Error> {
        if let Some(place) = text.iter().position(|it| !spec.knows(*it)) {
            return Err(Error::data(format!("token {place}: {}", spec.unknown(text[place]))));
        }
        let n_tokens = text.len();
        Self::of(Source::Memory(text), n_tokens, spec).map_err(Error::data)
    }

    /// Opens a file that contains only tokens. Windows are read on demand, so the file may be
    /// larger than memory. Their tokens are compared with the vocabulary when they are read.
    ///
    /// A file that [`tokenize_file`](crate::tokenize_file) or its like wrote has another one beside
    /// it, `<name>.json`, that identifies the tokenizer. It is the [numbering](Numbering) of the
    /// columns.
    ///
    /// # Errors
    /// - If the file cannot be opened, or its size is not a multiple of a token.
    /// - If a window or the stride has no token, or the file is too short for one window.
    /// - If the file beside it is of other tokens.
    pub fn open(path: impl AsRef<Path>, width: TokenWidth, spec: TokenSpec) -> Result<Self, Error> {
        let file = PositionedFile::open(path.as_ref())?;
        let (size, n_bytes) = (width.n_bytes() as u64, file.n_bytes());
        if n_bytes % size != 0 {
            let message =
                format!("expected tokens of {size} bytes, found a rest of {}", n_bytes % size);
            return Err(file.error_at(n_bytes - n_bytes % size, &message));
        }
        let n_tokens = usize::try_from(n_bytes / size).unwrap_or(usize::MAX);
        let path = file.path().to_owned();
        let tokenizer = TokenOrigin::read(&path, n_bytes)?.map(|it| it.tokenizer);
        let tokens = Self::of(Source::File(file, width), n_tokens, spec)
            .map_err(|message| crate::file::named(&path, &message))?;
        Ok(Self { tokenizer, ..tokens })
    }

    /// Says which tokenizer the tokens are of, for those of memory and of other programs' files.
    #[must_use]
    pub fn with_tokenizer(self, tokenizer: &dyn Tokenizer) -> Self {
        Self { tokenizer: Some(tokenizer.fingerprint()), ..self }
    }

    fn of(source: Source, n_tokens: usize, spec: TokenSpec) -> Result<Self, String> {
        let TokenSpec { length, stride, .. } = spec;
        if length == 0 || stride == 0 {
            return Err(format!(
                "expected windows and a stride of at least one token, found {length} and {stride}"
            ));
        }
        if n_tokens <= length {
            let n_needed = length.saturating_add(1);
            return Err(format!(
                "expected at least {n_needed} tokens, those of a window and the one that follows, found {n_tokens}"
            ));
        }
        let column =
            |name: &str| ColumnSpec { name: name.to_owned(), row: vec![length], dtype: DType::I32 };
        let n_windows = (n_tokens - length).div_ceil(stride);
        Ok(Self {
            source,
            spec,
            n_windows,
            columns: [column("tokens"), column("next")],
            tokenizer: None,
        })
    }

    /// Reads the tokens of a window and the token that follows from a file.
    fn read_window(
        &self,
        file: &PositionedFile,
        width: TokenWidth,
        start: usize,
        window: &mut [i32],
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let size = width.n_bytes();
        file.read(bytes, start as u64 * size as u64)?;
        for (place, (to, bytes)) in window.iter_mut().zip(bytes.chunks_exact(size)).enumerate() {
            let token = match width {
                TokenWidth::U16 => u32::from(u16::from_le_bytes([bytes[0], bytes[1]])),
                TokenWidth::U32 => u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            };
            let known = i32::try_from(token).ok().filter(|it| self.spec.knows(*it));
            let at = (start + place) as u64 * size as u64;
            *to = known.ok_or_else(|| file.error_at(at, &self.spec.unknown(token)))?;
        }
        Ok(())
    }
}

impl TokenSpec {
    fn knows(self, token: i32) -> bool {
        usize::try_from(token).is_ok_and(|it| it < self.vocabulary)
    }

    fn unknown(self, token: impl fmt::Display) -> String {
        format!("expected a token in 0..{}, found {token}", self.vocabulary)
    }
}

impl Dataset for Tokens {
    fn n_rows(&self) -> usize {
        self.n_windows
    }

    fn columns(&self) -> &[ColumnSpec] {
        &self.columns
    }

    fn numbering(&self, _column: usize) -> Option<Numbering> {
        self.tokenizer.map(Numbering::Tokens)
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        let TokenSpec { length, stride, .. } = self.spec;
        let mut read = vec![0; length + 1];
        let mut bytes = match &self.source {
            Source::Memory(_) => Vec::new(),
            Source::File(_, width) => vec![0; (length + 1) * width.n_bytes()],
        };
        for (number, row) in rows.iter().enumerate() {
            let start = row * stride;
            let window = match &self.source {
                Source::Memory(text) => &text[start..=start + length],
                Source::File(file, width) => {
                    self.read_window(file, *width, start, &mut read, &mut bytes)?;
                    &read
                }
            };
            for (shift, column) in into.iter_mut().enumerate() {
                let to = &mut column.i32s()[number * length..(number + 1) * length];
                to.copy_from_slice(&window[shift..shift + length]);
            }
        }
        Ok(())
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.source, Source::Memory(_))
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("spec", &self.spec)
            .field("n_windows", &self.n_windows)
            .finish_non_exhaustive()
    }
}
