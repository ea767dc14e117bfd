//! The command `generate`, which continues texts.

use std::{fmt, io::Write, path::Path, time::Instant};

use soybean_runtime::{
    Predictor,
    checkpoint::Checkpoint,
    data::{SpecialTokens, Tokenizer},
};

use super::{
    CommandError, CommandModel,
    flags::{GenerateOptions, Options},
};
use crate::{
    generation::{Generation, GenerationConfig, Sampling, n_texts},
    run::Numberings,
};

/// Continues the texts of the options, as many at a time as the model takes. A single one is shown
/// while it grows.
pub(super) fn generate(
    model: &CommandModel,
    options: &Options,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let tables = model.model.tables();
    let texts = model.texts.as_ref().expect("the command is one of models of texts");
    let GenerateOptions { weights, tokenizer, special_tokens, ends, prompts, n_new, sampling } =
        &options.generate;
    let file = tokenizer.as_deref().map(|it| open(it, *special_tokens)).transpose()?;
    let Some(tokenizer) = file.as_deref().or(texts.tokenizer.as_deref()) else {
        return Err("--tokenizer: expected the file of the model's tokenizer".to_owned().into());
    };
    let config = GenerationConfig {
        sampling: Sampling { seed: options.run.trainer.seed, ..sampling.clone() },
        ends: self::ends(tokenizer, ends)?,
        ..GenerationConfig::new(*n_new, texts.capacity)
    };
    let default = [texts.prompt.to_owned()];
    let prompts = if prompts.is_empty() { &default[..] } else { prompts };
    let vocabulary = tables.predictions(0).first().and_then(|it| it.tile.shape.last().copied());
    let starts = prompts.iter().map(|it| tokens(tokenizer, it, vocabulary.unwrap_or(0)));
    let starts = starts.collect::<Result<Vec<_>, String>>()?;

    let mut predictor = Predictor::new(model.model, options.run.trainer.clone())?;
    match weights {
        Some(path) => {
            predictor.load_weights(path, &texts.names.parse()?)?;
            if let Some(progress) = Checkpoint::progress_beside(path)? {
                let trained = Numberings::stored(&progress).check_tokenizer(tokenizer);
                trained.map_err(|it| format!("--tokenizer: {}: {it}", path.display()))?;
            }
        }
        None => writeln!(output, "random weights: --weights reads those of a trained model")?,
    }
    writeln!(output, "{}\n", predictor.device_line())?;

    let mut speed = Speed::default();
    for starts in starts.chunks(n_texts(tables)?) {
        let starts: Vec<&[i32]> = starts.iter().map(Vec::as_slice).collect();
        let mut generation = Generation::new(&starts, config.clone())?;
        predictor.reset_states()?;
        let started = Instant::now();
        let mut shown = String::new();
        while !generation.is_done() {
            let new = generation.step_by(tables, &mut predictor)?;
            speed.count(new.iter().flatten().count(), started.elapsed().as_secs_f64());
            if prompts.len() == 1 {
                show(output, &mut shown, &text(tokenizer, generation.text(0))?)?;
            }
        }
        speed.end();
        for number in 0..starts.len() {
            let whole = text(tokenizer, generation.text(number))?;
            writeln!(output, "{}\n", whole.strip_prefix(shown.as_str()).unwrap_or_default())?;
        }
    }
    Ok(writeln!(output, "{speed}")?)
}

/// Opens the file of a tokenizer, which adds these tokens to prompts.
#[cfg(feature = "tokenizers")]
fn open(path: &Path, choice: SpecialTokens) -> Result<Box<dyn Tokenizer>, CommandError> {
    let tokenizer = soybean_runtime::data::TokenizerFile::open(path)?;
    Ok(Box::new(tokenizer.with_special_tokens(choice)))
}

/// Fails, because the crate that reads tokenizers is no part of this program.
#[cfg(not(feature = "tokenizers"))]
fn open(path: &Path, _: SpecialTokens) -> Result<Box<dyn Tokenizer>, CommandError> {
    let path = path.display();
    Err(format!("{path}: build with `--features tokenizers` to read tokenizers").into())
}

/// Returns the numbers of the tokens after which texts end: those of these names, or else the
/// tokenizer's own.
fn ends(tokenizer: &dyn Tokenizer, names: &[String]) -> Result<Vec<i32>, String> {
    let number = |it: &String| {
        let unknown = || format!("--end: expected a token of the tokenizer, found `{it}`");
        tokenizer.number_of(it).ok_or_else(unknown)
    };
    let ends = match names {
        [] => tokenizer.ends(),
        _ => names.iter().map(number).collect::<Result<Vec<u32>, String>>()?,
    };
    Ok(ends.into_iter().filter_map(|it| i32::try_from(it).ok()).collect())
}

/// Returns the tokens of a prompt, all of which the model knows.
fn tokens(tokenizer: &dyn Tokenizer, prompt: &str, vocabulary: usize) -> Result<Vec<i32>, String> {
    let tokens = tokenizer.encode(prompt).map_err(|error| format!("--prompt: {error}"))?;
    if tokens.is_empty() {
        return Err("--prompt: expected a text of at least one token, found none".to_owned());
    }
    let known = |it: &u32| {
        let token = i32::try_from(*it).ok();
        token.filter(|it| usize::try_from(*it).is_ok_and(|it| it < vocabulary)).ok_or_else(|| {
            format!(
                "--prompt: the model has {vocabulary} tokens, found token {it}: expected the \
                 tokenizer of the same model"
            )
        })
    };
    tokens.iter().map(known).collect()
}

fn text(tokenizer: &dyn Tokenizer, tokens: &[i32]) -> Result<String, String> {
    let tokens: Vec<u32> = tokens.iter().map(|it| it.cast_unsigned()).collect();
    tokenizer.decode(&tokens)
}

/// Writes the part of the text that has not been shown. A character whose last bytes are in the
/// next token waits for it.
fn show(output: &mut dyn Write, shown: &mut String, text: &str) -> Result<(), CommandError> {
    if let Some(new) = text.strip_prefix(shown.as_str())
        && !new.ends_with(char::REPLACEMENT_CHARACTER)
    {
        output.write_all(new.as_bytes())?;
        output.flush()?;
        text.clone_into(shown);
    }
    Ok(())
}

/// The number of new tokens, and the seconds that they took.
#[derive(Default)]
struct Speed {
    n_new: usize,
    /// The seconds until texts had their first token.
    before_first: f64,
    /// The tokens after the first ones, and their seconds.
    n_rest: usize,
    rest: f64,
    /// The seconds until the first and until the last token of the texts that grow, if they have
    /// one.
    current: Option<(f64, f64)>,
}

impl Speed {
    /// Counts `n` tokens that texts got so many seconds after their start.
    fn count(&mut self, n: usize, seconds: f64) {
        if n == 0 {
            return;
        }
        self.n_new += n;
        self.current = match self.current {
            None => Some((seconds, seconds)),
            Some((first, _)) => {
                self.n_rest += n;
                Some((first, seconds))
            }
        };
    }

    /// Ends the texts that grow.
    fn end(&mut self) {
        let (first, last) = self.current.take().unwrap_or_default();
        self.before_first += first;
        self.rest += last - first;
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_new, before_first, n_rest, rest, current: _ } = self;
        let per_second = if *n_rest == 0 { 0.0 } else { *n_rest as f64 / rest };
        write!(
            f,
            "first of {n_new} tokens after {before_first:.2} s, then {per_second:.1} tokens per second"
        )
    }
}
