//! A program that continues a text by a network of Hugging Face, token by token.

pub(crate) mod options;
pub(crate) mod tokens;

use std::{
    env,
    error::Error,
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use soybean::{
    Config, Network, Predictor,
    generation::{Generation, GenerationConfig},
    runtime::View,
};

use self::{
    options::{HELP, Options},
    tokens::Tokens,
};

/// A decoder that takes one token of one text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder {
    /// The names of its weights in the files of Hugging Face.
    pub(crate) names: &'static str,
    /// The number of different tokens.
    pub(crate) vocabulary: usize,
    /// The most tokens that its cache holds.
    pub(crate) capacity: usize,
}

/// Runs the program: with the model `P` and files of weights, or with the smaller model `R` and
/// random weights.
pub(crate) fn run<P: Network, R: Network>(pretrained: Decoder, random: Decoder) -> ExitCode {
    let output = &mut io::stdout();
    let written = match Options::parse(env::args_os().skip(1)) {
        Ok(Some(options)) if options.pretrained.is_some() => {
            write_text::<P>(pretrained, &options, output)
        }
        Ok(Some(options)) => write_text::<R>(random, &options, output),
        Ok(None) => output.write_all(HELP.as_bytes()).map_err(Into::into),
        Err(error) => Err(format!("{error}; `--help` lists the flags").into()),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed too, the exit code remains.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Continues the text of the options, and writes it while it grows.
pub(crate) fn write_text<N: Network>(
    decoder: Decoder,
    options: &Options,
    output: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let tokens = match &options.pretrained {
        Some(files) => Tokens::open(&files.tokenizer)?,
        None => Tokens::Bytes,
    };
    let start = tokens.of(&options.prompt)?;
    check_tokens(&start, decoder.vocabulary)?;
    let config = GenerationConfig {
        sampling: options.sampling.clone(),
        end: tokens.end(),
        ..GenerationConfig::new(options.n_new, decoder.capacity)
    };
    let mut generation = Generation::new(&[&start], config)?;

    let config = Config { seed: options.sampling.seed, ..Config::default() };
    let mut predictor = Predictor::<N>::new(config)?;
    if let Some(files) = &options.pretrained {
        predictor.load_weights(&files.weights, &decoder.names.parse()?)?;
    } else {
        writeln!(output, "random weights: `--weights` and `--tokenizer` read those of a model")?;
    }
    writeln!(output, "{}\n", predictor.device_line())?;

    let started = Instant::now();
    let mut seconds_before_first = 0.0;
    let mut shown = String::new();
    write_next(output, &mut shown, tokens.text(&start)?)?;
    let n_new = write_tokens(&mut predictor, &mut generation, |text| {
        if text.len() == start.len() + 1 {
            seconds_before_first = started.elapsed().as_secs_f64();
        }
        write_next(output, &mut shown, tokens.text(text)?)
    })?;
    let seconds = started.elapsed().as_secs_f64() - seconds_before_first;
    let rest = n_new.saturating_sub(1);
    writeln!(
        output,
        "\n\nfirst of {n_new} tokens after {seconds_before_first:.2} s, then {:.1} tokens per second",
        if rest == 0 { 0.0 } else { rest as f64 / seconds }
    )?;
    Ok(())
}

/// Lets the model read and write until the text is done. Calls `show` with all tokens after each
/// new one, and returns the number of new tokens.
pub(crate) fn write_tokens<N: Network>(
    predictor: &mut Predictor<N>,
    generation: &mut Generation,
    mut show: impl FnMut(&[i32]) -> Result<(), Box<dyn Error>>,
) -> Result<usize, Box<dyn Error>> {
    let mut n_new = 0;
    while !generation.is_done() {
        let (tokens, n_before) = (generation.tokens(), generation.n_before());
        let batch = vec![View::I32(&tokens), View::I32(&n_before)];
        let new = generation.push(&predictor.predict(&batch)?[0])?;
        if new[0].is_some() {
            n_new += 1;
            show(generation.text(0))?;
        }
    }
    Ok(n_new)
}

/// Writes the part of the text that has not been shown. A character whose last bytes are in the
/// next token waits for it.
fn write_next(
    output: &mut dyn Write,
    shown: &mut String,
    text: String,
) -> Result<(), Box<dyn Error>> {
    if let Some(new) = text.strip_prefix(shown.as_str())
        && !new.ends_with(char::REPLACEMENT_CHARACTER)
    {
        output.write_all(new.as_bytes())?;
        output.flush()?;
        *shown = text;
    }
    Ok(())
}

fn check_tokens(tokens: &[i32], vocabulary: usize) -> Result<(), Box<dyn Error>> {
    if tokens.is_empty() {
        return Err("`--prompt` must have a token, found none".into());
    }
    let is_unknown = |it: &&i32| usize::try_from(**it).map_or(true, |it| it >= vocabulary);
    match tokens.iter().find(is_unknown) {
        Some(token) => Err(format!(
            "the network has {vocabulary} tokens, but the prompt has token {token}: expected the \
             tokenizer of the same model"
        )
        .into()),
        None => Ok(()),
    }
}
