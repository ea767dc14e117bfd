//! A transformer on eight devices that learns to write "Pride and Prejudice" character by
//! character: `cargo run --release --example gpt`.
//!
//! It prints its plan, trains, compares its loss on the last tenth of the novel with that of a
//! bigram model, and continues two texts. `-- plan`, `-- check`, `-- bench` and `-- train` are
//! the commands of every model, and `-- generate --weights CHECKPOINT` continues texts by the
//! weights of a run; `--help` lists their flags.

#[path = "data/text.rs"]
mod data;
#[path = "networks/gpt.rs"]
mod networks;

use std::{
    env,
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use soybean::{
    Array, Config, Curve, DataOptions, Event, Flow, Schedule, TrainConfig,
    data::Vocabulary,
    generation::{Generation, GenerationConfig, Sampling, TextModel},
};

/// Four blocks of four heads, for 75 different characters.
#[soybean::constant]
const SIZES: networks::Gpt =
    networks::Gpt { vocabulary: 75, width: 128, n_heads: 4, n_layers: 4, dropout: 0.1 };

/// The network that is trained.
#[soybean::model(gpus = 8, optimizer = adamw(betas = (0.9, 0.99)))]
pub mod gpt {
    use soybean::prelude::*;

    use super::{SIZES, networks};

    /// Texts in a batch.
    pub const BATCH: usize = 32;
    /// Characters in a text; equals `data::LENGTH`.
    pub const LENGTH: usize = 64;

    /// Returns the cross-entropy of the next characters, and the logits.
    pub fn forward(
        letters: Tensor<i32, BATCH, LENGTH>,
        next: Tensor<i32, BATCH, LENGTH>,
    ) -> (Tensor, Tensor) {
        let logits = networks::gpt(letters, SIZES);
        (logits.cross_entropy(next), logits)
    }
}

/// The network for the next token of each text, with a cache of those before.
mod cached {
    use soybean::{nn, prelude::*};

    use super::networks::Gpt;

    /// Tokens `[batch, length]`, which come after `n_before [batch]` others, to logits of the next
    /// ones, `[batch, length, vocabulary]`. A text has at most `capacity` tokens.
    #[soybean::layer]
    pub(crate) fn gpt(tokens: Tensor, n_before: Tensor, sizes: Gpt, capacity: usize) -> Tensor {
        let Gpt { vocabulary, width, n_heads, n_layers, .. } = sizes;
        let places = param("places", [capacity, width], normal(0.02));
        let words = param("words", [vocabulary, width], normal(0.02));
        let place = n_before.to_f32().unsqueeze(1) + arange(tokens.dim(1)).to_f32();
        let mut h = tokens.embedding(words) + place.to_i32().embedding(places);
        let attention = nn::cached::Attention { n_heads, capacity };
        for _ in 0..n_layers {
            h = nn::cached::transformer_block(h, n_before, attention);
        }
        nn::linear_without_bias(nn::layer_norm(h), vocabulary)
    }
}

/// Predicts the next character of two texts, with a cache of the keys and values before it. The
/// beginnings of the texts are read eight characters at a time.
#[soybean::model(gpus = 8, mode = "inference", entries = (prefill = 4, decode = 320))]
pub mod writer {
    use soybean::prelude::*;

    use super::{SIZES, cached};

    /// Characters that the cache holds, as in `gpt`.
    const LENGTH: usize = 64;

    /// Characters of each text that `prefill` reads at once.
    pub const BLOCK: usize = 8;

    /// Returns the logits of the character after each of `letters`, which come after `n_before`
    /// others.
    pub fn prefill(letters: Tensor<i32, 2, BLOCK>, n_before: Tensor<i32, 2>) -> Tensor {
        cached::gpt(letters, n_before, SIZES, LENGTH)
    }

    /// Does the same for one character.
    pub fn decode(letters: Tensor<i32, 2, 1>, n_before: Tensor<i32, 2>) -> Tensor {
        cached::gpt(letters, n_before, SIZES, LENGTH)
    }
}

/// How the texts begin.
const STARTS: [&str; 2] = ["It is a truth universally ", "\"My dear Mr. Bennet,\" "];
const N_WRITTEN: usize = 320;

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        Some("generate") => {
            return writer::Predictor::command_line_of_texts(TextModel {
                capacity: gpt::LENGTH,
                tokenizer: Some(Box::new(Vocabulary::of_characters(data::LETTERS))),
                names: "",
                prompt: STARTS[0],
            });
        }
        Some(_) => return gpt::Trainer::command_line_with(TrainConfig::new(1, 0.001), data::load),
        None => {}
    }
    match train_and_write(&mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed too, the exit code remains.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn train_and_write(output: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let options = DataOptions::default();
    let (learnt, rest) = data::text(&options)?;
    let bigram_loss = data::bigram_loss(&learnt, &rest);
    let split = data::load(&options)?;
    let config = config();
    let mut trainer = gpt::Trainer::new(config.trainer.clone())?;
    writeln!(output, "{}\n{}", gpt::Trainer::PLAN.text, trainer.device_line())?;
    let mut written = Ok(());
    let summary = trainer.fit_watched(&config, &split, |event| {
        if let Event::Evaluation(_) = event {
            written = writeln!(output, "{event}").and_then(|()| output.flush());
        }
        if written.is_ok() { Flow::Continue } else { Flow::Stop }
    })?;
    written?;
    let held_out = summary.last.map_or(f64::NAN, |it| it.held_out_loss);
    writeln!(output, "held-out loss {held_out:.4}, that of a bigram model {bigram_loss:.4}\n")?;
    for text in write_texts(&trainer.parameters()?)? {
        writeln!(output, "{text}\n")?;
    }
    Ok(())
}

/// Linear warm-up, then half a cosine down to a tenth of the learning rate.
fn config() -> TrainConfig {
    TrainConfig {
        steps: Some(600),
        evaluate_every: Some(100),
        schedule: Schedule {
            curve: Curve::Cosine,
            warm_up: 40,
            floor: 0.0002,
            ..Schedule::default()
        },
        ..TrainConfig::new(1, 0.002)
    }
}

/// Continues texts with random characters, drawn by their probabilities.
fn write_texts(weights: &[(String, Array)]) -> Result<Vec<String>, soybean::Error> {
    let mut predictor = writer::Predictor::new(Config::default())?;
    predictor.set_parameters(weights)?;
    let sampling = Sampling { temperature: 0.7, ..Sampling::default() };
    let config = GenerationConfig { sampling, ..GenerationConfig::new(N_WRITTEN, gpt::LENGTH) };
    let starts = STARTS.map(data::numbers);
    let mut generation = Generation::new(&starts.each_ref().map(|it| &it[..]), config)?;
    while !generation.is_done() {
        generation.step(&mut predictor)?;
    }
    let letter = |it: &i32| usize::try_from(*it).ok().and_then(|it| data::LETTERS.chars().nth(it));
    let text = |number| generation.text(number).iter().filter_map(letter).collect();
    Ok((0..STARTS.len()).map(text).collect())
}
