//! The generation of texts, token by token, by a model that predicts the next token.

mod sampling;
mod step;
mod text_model;

use soybean_runtime::{Array, Error, ErrorKind};

pub use sampling::Sampling;
pub(crate) use step::n_texts;
pub use text_model::TextModel;

/// How texts are continued.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationConfig {
    /// The most tokens that are added to each text.
    pub n_new: usize,
    /// The most tokens that the model's cache holds, as in
    /// [`nn::cached::multi_head_attention`](crate::nn::cached::multi_head_attention).
    pub capacity: usize,
    /// The tokens after any of which a text ends, such as those of
    /// [`Tokenizer::ends`](soybean_runtime::data::Tokenizer::ends); without any, texts end by their
    /// length alone.
    pub ends: Vec<i32>,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

impl GenerationConfig {
    /// Adds so many tokens, drawn by their probabilities.
    #[must_use]
    pub fn new(n_new: usize, capacity: usize) -> Self {
        Self { n_new, capacity, ends: Vec::new(), sampling: Sampling::default() }
    }
}

/// Texts that are continued by a model of mode inference which keeps what it has read
/// ([`nn::cached`](crate::nn::cached)).
///
/// In each [`step`](Self::step) the model reads one more token of each text. It reads the given
/// tokens first, so texts may begin with different numbers of them; a model with further entries
/// reads them several at a time. A text that is longer than the cache is read again from its
/// last half on, as many tokens as half the capacity.
///
/// ```
/// use soybean::generation::{Generation, GenerationConfig};
///
/// #[soybean::model(gpus = 2, mode = "inference")]
/// mod writer {
///     use soybean::{nn, prelude::*};
///
///     pub(crate) fn forward(tokens: Tensor<i32, 2, 1>, n_before: Tensor<i32, 2>) -> Tensor {
///         let mut h = nn::embedding(tokens, nn::Embedding { vocabulary: 5, width: 8 });
///         h += nn::embedding(n_before, nn::Embedding { vocabulary: 16, width: 8 }).unsqueeze(1);
///         let attention = nn::cached::Attention { n_heads: 2, capacity: 16 };
///         let h = nn::cached::transformer_block(h, n_before, attention);
///         nn::linear(h, 5)
///     }
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     let mut predictor = writer::Predictor::new(soybean::Config::default())?;
///     let mut generation = Generation::new(&[&[1, 4], &[3]], GenerationConfig::new(20, 16))?;
///     while !generation.is_done() {
///         generation.step(&mut predictor)?;
///     }
///     assert_eq!((generation.text(0).len(), generation.text(1).len()), (22, 21));
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Generation {
    config: GenerationConfig,
    texts: Vec<Text>,
}

/// A text of which the model has read a part.
#[derive(Clone, Debug)]
struct Text {
    tokens: Vec<i32>,
    n_given: usize,
    /// The first token that is in the cache, and the number of tokens there.
    first: usize,
    n_cached: usize,
}

impl Text {
    fn n_unread(&self) -> usize {
        self.tokens.len() - self.first - self.n_cached
    }

    fn is_done(&self, config: &GenerationConfig) -> bool {
        let n_new = self.tokens.len() - self.n_given;
        let is_ended = n_new > 0 && self.tokens.last().is_some_and(|it| config.ends.contains(it));
        n_new >= config.n_new || is_ended
    }
}

impl Generation {
    /// Begins with these tokens.
    ///
    /// # Errors
    /// If a text has no token, the capacity is less than 2, or a setting is impossible.
    pub fn new(texts: &[&[i32]], config: GenerationConfig) -> Result<Self, Error> {
        config.sampling.check()?;
        let fault = |message: String| Err(Error::new(ErrorKind::Choice, message));
        if config.capacity < 2 {
            return fault(format!("`capacity` must be at least 2, found {}", config.capacity));
        }
        if let Some(empty) = texts.iter().position(|it| it.is_empty()) {
            return fault(format!("text {empty} must begin with a token, found none"));
        }
        let text = |tokens: &&[i32]| Text {
            tokens: tokens.to_vec(),
            n_given: tokens.len(),
            first: 0,
            n_cached: 0,
        };
        Ok(Self { texts: texts.iter().map(text).collect(), config })
    }

    /// Returns true if all texts have as many new tokens as they may have, or have ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.texts.iter().all(|it| it.is_done(&self.config))
    }

    /// Returns the token of each text that the model reads next.
    #[must_use]
    pub fn tokens(&self) -> Vec<i32> {
        self.block(1)
    }

    /// Returns the tokens of each text that the model reads next if it reads `n` of each at once,
    /// `[texts, n]`. After the last token of a text, that token is repeated; what the model makes
    /// of the repetitions is dropped.
    #[must_use]
    pub fn block(&self, n: usize) -> Vec<i32> {
        let of_text = |it: &Text| -> Vec<i32> {
            let unread = &it.tokens[it.first + it.n_cached..];
            (0..n).map(|at| unread[at.min(unread.len() - 1)]).collect()
        };
        self.texts.iter().flat_map(of_text).collect()
    }

    /// Returns true if a model should read `n` tokens of each text at once: if that saves
    /// predictions, because a text has several tokens that the model has not read, and if the cache
    /// has room for `n` of each.
    #[must_use]
    pub fn has_block(&self, n: usize) -> bool {
        let has_room = |it: &Text| it.n_cached + n <= self.config.capacity;
        let has_several = |it: &Text| it.n_unread() > 1;
        n > 1 && self.texts.iter().all(has_room) && self.texts.iter().any(has_several)
    }

    /// Returns the number of tokens of each text that are in the cache: the place of the next one.
    ///
    /// # Panics
    /// If a cache of more than `i32::MAX` tokens is full.
    #[must_use]
    pub fn n_before(&self) -> Vec<i32> {
        let number = |it: &Text| i32::try_from(it.n_cached).expect("a cache has fewer tokens");
        self.texts.iter().map(number).collect()
    }

    /// Takes the model's logits, `[texts, n, tokens]` for the tokens after each of a block of `n`,
    /// or `[texts, tokens]` for `n = 1`. Returns the token that each text got, if it did.
    ///
    /// # Errors
    /// If the number of logits is no multiple of that of texts, or a logit is not a number.
    pub fn push(&mut self, logits: &Array) -> Result<Vec<Option<i32>>, Error> {
        let (n_logits, n_texts) = (logits.data.len(), self.texts.len());
        let n_tokens = logits.shape.last().copied().unwrap_or_default();
        let n_of_text = n_logits / n_texts.max(1);
        let is_whole = n_tokens > 0 && n_of_text > 0 && n_of_text.is_multiple_of(n_tokens);
        if !is_whole || n_of_text * n_texts != n_logits {
            let message = format!(
                "expected as many logits for each of {n_texts} texts, found {:?}",
                logits.shape
            );
            return Err(Error::new(ErrorKind::Batch, message));
        }
        if let Some(wrong) = logits.data.iter().position(|it| it.is_nan()) {
            let (text, token) = (wrong / n_of_text, wrong % n_tokens);
            let message = format!("text {text}: the logit of token {token} is not a number");
            return Err(Error::new(ErrorKind::Loss, message));
        }
        let blocks = logits.data.chunks(n_of_text).map(|it| it.chunks(n_tokens).collect());
        let blocks = blocks.enumerate().collect::<Vec<(usize, Vec<&[f32]>)>>();
        let texts = self.texts.iter_mut().zip(&blocks);
        Ok(texts.map(|(it, (number, block))| it.advance(*number, block, &self.config)).collect())
    }

    /// Returns the tokens of a text, with those that it began with.
    ///
    /// # Panics
    /// If there are not so many texts.
    #[must_use]
    pub fn text(&self, number: usize) -> &[i32] {
        &self.texts[number].tokens
    }
}

impl Text {
    /// Goes to the next tokens, given the logits after each of a block. If all have been read,
    /// draws another one and returns it. A text that is done stays where it is.
    fn advance(
        &mut self,
        number: usize,
        logits: &[&[f32]],
        config: &GenerationConfig,
    ) -> Option<i32> {
        if self.is_done(config) {
            return None;
        }
        let n_read = logits.len().min(self.n_unread()).min(config.capacity - self.n_cached);
        self.n_cached += n_read;
        let mut new = None;
        if self.n_unread() == 0 {
            let place = [number as u64, self.tokens.len() as u64];
            let token = config.sampling.token(logits[n_read - 1], place);
            new = Some(i32::try_from(token).expect("a model knows fewer tokens"));
            self.tokens.extend(new);
        }
        if self.n_cached == config.capacity {
            self.first += config.capacity - config.capacity / 2;
            self.n_cached = 0;
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N_TOKENS: usize = 7;

    /// Continues texts by a model that counts on, modulo 7. Returns them, and what the model read:
    /// the tokens of all texts and their places.
    fn counted(texts: &[&[i32]], config: GenerationConfig) -> (Vec<Vec<i32>>, Vec<[Vec<i32>; 2]>) {
        counted_in_blocks(1, texts, config)
    }

    /// Does the same with a model that reads blocks of `n` tokens where it should.
    fn counted_in_blocks(
        n: usize,
        texts: &[&[i32]],
        config: GenerationConfig,
    ) -> (Vec<Vec<i32>>, Vec<[Vec<i32>; 2]>) {
        let mut generation = Generation::new(texts, config).unwrap();
        let mut read = Vec::new();
        while !generation.is_done() {
            let n = if generation.has_block(n) { n } else { 1 };
            let tokens = generation.block(n);
            let row = |token: &i32| {
                let next = (token + 1) % 7;
                (0..7).map(move |it| if it == next { 9.0 } else { 0.0 })
            };
            let data: Vec<f32> = tokens.iter().flat_map(row).collect();
            let shape = vec![texts.len(), n, N_TOKENS];
            read.push([tokens, generation.n_before()]);
            generation.push(&Array { shape, data, ..Array::default() }).unwrap();
        }
        let texts = (0..texts.len()).map(|it| generation.text(it).to_vec()).collect();
        (texts, read)
    }

    fn greedy(n_new: usize, capacity: usize) -> GenerationConfig {
        let sampling = Sampling::greedy();
        GenerationConfig { sampling, ..GenerationConfig::new(n_new, capacity) }
    }

    #[test]
    fn texts_begin_with_different_numbers_of_tokens() {
        let (texts, read) = counted(&[&[5], &[3, 1, 0]], greedy(3, 100));
        assert_eq!(texts, [vec![5, 6, 0, 1], vec![3, 1, 0, 1, 2, 3]]);
        let expected = [([5, 3], [0, 0]), ([6, 1], [1, 1]), ([0, 0], [2, 2])];
        for ([tokens, n_before], expected) in read.iter().zip(expected) {
            assert_eq!((&tokens[..], &n_before[..]), (&expected.0[..], &expected.1[..]));
        }
        // The first text waits for the second.
        assert_eq!(read[3..], [[vec![1, 1], vec![3, 3]], [vec![1, 2], vec![3, 4]]]);
    }

    /// Blocks change what the model reads, not the texts.
    #[test]
    fn given_tokens_are_read_in_blocks() {
        let texts: [&[i32]; 2] = [&[5], &[3, 1, 0, 2, 4]];
        let (found, read) = counted_in_blocks(3, &texts, greedy(3, 8));
        assert_eq!(found, counted(&texts, greedy(3, 8)).0);
        let expected = [
            [vec![5, 5, 5, 3, 1, 0], vec![0, 0]],
            // The first text has one new token, and the second has two left to read.
            [vec![6, 6, 6, 2, 4, 4], vec![1, 3]],
            [vec![0, 5], vec![2, 5]],
        ];
        assert_eq!(read[..3], expected);
        // A cache of seven tokens has no room for two more blocks.
        for (n, capacity) in [(3, 7), (2, 5), (4, 4), (9, 5)] {
            let texts: [&[i32]; 2] = [&[0, 1, 2, 3, 4, 5, 6, 0, 1], &[2, 3]];
            let (found, read) = counted_in_blocks(n, &texts, greedy(9, capacity));
            assert_eq!(found, counted(&texts, greedy(9, capacity)).0, "{n} {capacity}");
            assert!(read.iter().all(|[tokens, n_before]| {
                n_before.iter().all(|it| *it as usize + tokens.len() / 2 <= capacity)
            }));
        }
    }

    #[test]
    fn texts_end_with_a_token_of_a_set() {
        let config = GenerationConfig { ends: vec![4], ..greedy(5, 100) };
        let (texts, _) = counted(&[&[4], &[1, 2], &[4, 3]], config);
        assert_eq!(texts, [vec![4, 5, 6, 0, 1, 2], vec![1, 2, 3, 4], vec![4, 3, 4]]);
        let config = GenerationConfig { ends: vec![0, 4, 3], ..greedy(5, 100) };
        let (texts, _) = counted(&[&[4], &[1, 2], &[4, 3]], config);
        assert_eq!(texts, [vec![4, 5, 6, 0], vec![1, 2, 3], vec![4, 3, 4]]);
    }

    /// With a full cache, the model reads the last half of the text again.
    #[test]
    fn long_texts_are_read_again() {
        let (texts, read) = counted(&[&[0, 1, 2, 3, 4, 5]], greedy(6, 5));
        assert_eq!(texts, [[0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4]]);
        let tokens: Vec<i32> = read.iter().map(|it| it[0][0]).collect();
        let n_before: Vec<i32> = read.iter().map(|it| it[1][0]).collect();
        assert_eq!(n_before, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
        assert_eq!(tokens, [0, 1, 2, 3, 4, 3, 4, 5, 6, 0, 6, 0, 1, 2, 3]);
    }

    #[test]
    fn mistakes_are_errors() {
        let fault = |texts: &[&[i32]], capacity| {
            Generation::new(texts, greedy(1, capacity)).unwrap_err().to_string()
        };
        assert_eq!(fault(&[&[1], &[]], 9), "text 1 must begin with a token, found none");
        assert_eq!(fault(&[&[1]], 1), "`capacity` must be at least 2, found 1");
        let mut generation = Generation::new(&[&[1], &[2]], greedy(1, 9)).unwrap();
        let mut fault = |data: Vec<f32>| {
            let array = Array { shape: vec![2, data.len() / 2], data, ..Array::default() };
            generation.push(&array).unwrap_err().to_string()
        };
        let expected = "expected as many logits for each of 2 texts, found [2, 1]";
        assert_eq!(fault(vec![0.0; 3]), expected);
        let expected = "text 1: the logit of token 0 is not a number";
        assert_eq!(fault(vec![0.0, 0.0, f32::NAN, 0.0]), expected);
    }
}
