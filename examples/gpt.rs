//! A transformer on eight devices that learns to write "Pride and Prejudice" character by
//! character: `cargo run --release --example gpt`.
//!
//! It prints its plan, trains, compares its loss on the last tenth of the novel with that of a
//! bigram model, and generates a few lines. `-- plan`, `-- check`, `-- bench` and `-- train` are
//! the commands of every model; `-- --help` lists their flags.

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

use soybean::{Curve, DataOptions, Event, Flow, Schedule, TrainConfig};

/// Four blocks of four heads.
#[soybean::model(gpus = 8, optimizer = adamw(betas = (0.9, 0.99)))]
pub mod gpt {
    use soybean::prelude::*;

    use super::networks;

    /// Texts in a batch.
    pub const BATCH: usize = 32;
    /// Characters in a text; equals `data::LENGTH`.
    pub const LENGTH: usize = 64;
    /// Number of characters.
    pub const VOCABULARY: usize = 75;

    /// Returns the cross-entropy of the next characters, and the logits.
    pub fn forward(
        letters: Tensor<i32, BATCH, LENGTH>,
        next: Tensor<i32, BATCH, LENGTH>,
    ) -> (Tensor, Tensor) {
        let logits = networks::gpt(letters, VOCABULARY, 128, 4, 4, 0.1);
        (logits.cross_entropy(next), logits)
    }
}

use gpt::{LENGTH, VOCABULARY};

const N_WRITTEN: usize = 320;
/// Temperatures below 1 make likely characters likelier.
const TEMPERATURE: f32 = 0.7;

fn main() -> ExitCode {
    let written = if env::args_os().len() > 1 {
        let defaults = TrainConfig::new(1, 0.001);
        return gpt::Trainer::command_line_with(defaults, data::load);
    } else {
        train_and_write(&mut io::stdout())
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
    writeln!(output, "{}", write_text(&mut trainer, "It is a truth universally ")?)?;
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

/// Continues a text with random characters, drawn by their probabilities.
fn write_text(trainer: &mut gpt::Trainer, start: &str) -> Result<String, soybean::Error> {
    let mut text = data::numbers(start);
    let mut random = 1_u64;
    for _ in 0..N_WRITTEN {
        let seen = &text[text.len().saturating_sub(LENGTH)..];
        // One text of the batch; characters do not attend to later ones.
        let mut letters = vec![0; LENGTH];
        letters[..seen.len()].copy_from_slice(seen);
        let batch = gpt::Batch { letters: &letters, ..Default::default() };
        let logits = trainer.predict(&batch)?.remove(0).data;
        let at = (seen.len() - 1) * VOCABULARY;
        // Marsaglia's xorshift generator.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
        text.push(drawn(&logits[at..at + VOCABULARY], share));
    }
    let letter = |it: &i32| usize::try_from(*it).ok().and_then(|it| data::LETTERS.chars().nth(it));
    Ok(text.iter().filter_map(letter).collect())
}

/// Returns the character at this point, from 0 to 1, of the cumulative probability.
fn drawn(logits: &[f32], share: f64) -> i32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights = logits.iter().map(|it| f64::from((it - largest) / TEMPERATURE).exp());
    let mut rest = share * weights.clone().sum::<f64>();
    let is_reached = |weight: f64| {
        rest -= weight;
        rest < 0.0
    };
    let found = weights.map(is_reached).position(|it| it).unwrap_or(VOCABULARY - 1);
    i32::try_from(found).expect("letters are few")
}
