//! Steps of a generation by a predictor whose entries read tokens.

use soybean_plan::{DType, Tables};
use soybean_runtime::{self as runtime, Array, Error, ErrorKind, View};

use super::Generation;
use crate::{Network, Predictor};

/// An entry that reads tokens, `[texts, n]`, after `n_before` others of each text, `[texts]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reader {
    entry: usize,
    n_texts: usize,
    /// The tokens of each text.
    n: usize,
}

impl Generation {
    /// Lets the model read the next tokens of all texts, and takes its logits. Returns the token
    /// that each text got, if it did.
    ///
    /// ```
    /// use soybean::generation::{Generation, GenerationConfig};
    ///
    /// #[soybean::model(gpus = 2, mode = "inference", entries = (prefill, decode = 20))]
    /// mod writer {
    ///     use soybean::{nn, prelude::*};
    ///
    ///     fn logits(tokens: Tensor, n_before: Tensor) -> Tensor {
    ///         let h = nn::embedding(tokens, nn::Embedding { vocabulary: 5, width: 8 });
    ///         let attention = nn::cached::Attention { n_heads: 2, capacity: 32 };
    ///         nn::linear(nn::cached::transformer_block(h, n_before, attention), 5)
    ///     }
    ///
    ///     pub(crate) fn prefill(tokens: Tensor<i32, 2, 4>, n_before: Tensor<i32, 2>) -> Tensor {
    ///         logits(tokens, n_before)
    ///     }
    ///
    ///     pub(crate) fn decode(tokens: Tensor<i32, 2, 1>, n_before: Tensor<i32, 2>) -> Tensor {
    ///         logits(tokens, n_before)
    ///     }
    /// }
    ///
    /// fn main() -> Result<(), soybean::Error> {
    ///     let mut predictor = writer::Predictor::new(soybean::Config::default())?;
    ///     let texts: [&[i32]; 2] = [&[1, 4, 2, 0, 3, 1], &[3]];
    ///     let mut generation = Generation::new(&texts, GenerationConfig::new(20, 32))?;
    ///     let mut n_predictions = 0;
    ///     while !generation.is_done() {
    ///         generation.step(&mut predictor)?;
    ///         n_predictions += 1;
    ///     }
    ///     // Two of four tokens, after which the first text has its first new token.
    ///     assert_eq!(n_predictions, 2 + 19);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// The model has an entry that reads a token of each text, with the arguments `tokens: Tensor<
    /// i32, TEXTS, 1>` and `n_before: Tensor<i32, TEXTS>`, and may have others that read several at
    /// once. It may take more texts than there are.
    ///
    /// # Errors
    /// If the model has no such entry or takes fewer texts, or a prediction fails.
    pub fn step<N: Network>(
        &mut self,
        predictor: &mut Predictor<N>,
    ) -> Result<Vec<Option<i32>>, Error> {
        self.step_by(N::model().tables(), predictor.untyped())
    }

    /// Does the same with a predictor that does not know its model.
    pub(crate) fn step_by(
        &mut self,
        tables: &Tables,
        predictor: &mut runtime::Predictor,
    ) -> Result<Vec<Option<i32>>, Error> {
        let readers = readers(tables)?;
        let n_texts = self.texts.len();
        let n_taken = readers[0].n_texts;
        if n_texts == 0 || n_texts > n_taken {
            let message =
                format!("expected 1 to {n_taken} texts, as the model takes, found {n_texts}");
            return Err(Error::new(ErrorKind::Batch, message));
        }
        let reader = self.reader(&readers);
        let tokens = repeated(self.block(reader.n), reader.n * n_taken, reader.n);
        let n_before = repeated(self.n_before(), n_taken, 1);
        let mut outputs =
            predictor.predict(reader.entry, &[View::I32(&tokens), View::I32(&n_before)])?;
        let logits = outputs.swap_remove(0);
        // Without the logits of the texts that fill the batch.
        let n_own = logits.data.len() / n_taken * n_texts;
        let shape = [n_texts].into_iter().chain(logits.shape[1..].iter().copied()).collect();
        self.push(&Array { shape, data: logits.data[..n_own].to_vec(), ..logits })
    }

    /// Returns the entry that reads all unread tokens at once, or as many as possible.
    fn reader(&self, readers: &[Reader]) -> Reader {
        let n_unread = self.texts.iter().map(super::Text::n_unread).max().unwrap_or(1);
        let fits = |it: &&Reader| self.has_block(it.n);
        let whole = readers.iter().filter(fits).find(|it| it.n >= n_unread);
        *whole.or_else(|| readers.iter().rfind(fits)).unwrap_or(&readers[0])
    }
}

/// Returns the number of texts that a model of these tables takes.
pub(crate) fn n_texts(tables: &Tables) -> Result<usize, Error> {
    Ok(readers(tables)?[0].n_texts)
}

/// Returns the entries that read tokens, those for fewer ones first. The first one reads one token
/// of each text.
fn readers(tables: &Tables) -> Result<Vec<Reader>, Error> {
    let reader = |entry: usize| match tables.inputs_of(entry) {
        [tokens, n_before] if [tokens.dtype, n_before.dtype] == [DType::I32; 2] => {
            match (&tokens.tile.shape[..], &n_before.tile.shape[..]) {
                ([n_texts, n], [also]) if n_texts == also => {
                    Some(Reader { entry, n_texts: *n_texts, n: *n })
                }
                _ => None,
            }
        }
        _ => None,
    };
    let mut readers: Vec<Reader> = (0..tables.entries.len()).filter_map(reader).collect();
    readers.sort_unstable_by_key(|it| it.n);
    let first = readers.first().filter(|it| it.n == 1);
    let n_texts = first.map(|it| it.n_texts).ok_or_else(|| {
        let message = format!(
            "expected an entry of `{}` that reads one token of each text, `tokens: Tensor<i32, \
             TEXTS, 1>` and `n_before: Tensor<i32, TEXTS>`, found none",
            tables.name
        );
        Error::new(ErrorKind::Choice, message)
    })?;
    readers.retain(|it| it.n_texts == n_texts);
    Ok(readers)
}

/// Repeats the last `n` numbers until there are `n_all`.
fn repeated(mut numbers: Vec<i32>, n_all: usize, n: usize) -> Vec<i32> {
    let last = numbers[numbers.len() - n..].to_vec();
    numbers.extend(last.iter().cycle().take(n_all - numbers.len()));
    numbers
}
