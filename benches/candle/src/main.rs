//! Tokens per second beside candle, with the same weights, in single precision on the same threads:
//! `cargo run --release --manifest-path benches/candle/Cargo.toml -- [ROUNDS] [gpt2|llama]`.
//!
//! Each round continues a prompt of 128 tokens by 128 tokens that are most probable, by both in
//! turn. Both must write the same tokens.

mod gpt2;
mod models;
mod peers;

use std::{env, error::Error, time::Instant};

use soybean::{
    Config, Network, Predictor,
    generation::{Generation, GenerationConfig, Sampling},
};

use models::{CAPACITY, N_NEW, N_PROMPT, gpt2 as our_gpt2, llama as our_llama};
use peers::Peer;

/// The seconds until the first token, and those of all tokens after it.
type Seconds = [f64; 2];

/// The times of all rounds of one program.
#[derive(Default)]
struct Times([Vec<f64>; 3]);

impl Times {
    fn push(&mut self, [first, rest]: Seconds) {
        self.0[0].push(first);
        self.0[1].push(rest);
        self.0[2].push(first + rest);
    }

    /// Returns the least time and the median of a part.
    fn least_and_median(&self, part: usize) -> [f64; 2] {
        let mut sorted = self.0[part].clone();
        sorted.sort_by(f64::total_cmp);
        [sorted[0], sorted[sorted.len() / 2]]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let n_rounds = arguments.next().map_or(Ok(7), |it| it.parse())?;
    let only = arguments.next();
    println!("| network | part | Soybean, least | median | candle, least | median | ratio |");
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    if only.as_deref() != Some("llama") {
        compare::<our_gpt2::Network>("GPT-2 124M", n_rounds, peers::gpt2)?;
    }
    if only.as_deref() != Some("gpt2") {
        compare::<our_llama::Network>("Llama, 8 blocks", n_rounds, peers::llama)?;
    }
    Ok(())
}

/// Measures both in turn, and prints a table's rows.
fn compare<N: Network>(
    name: &str,
    n_rounds: usize,
    peer: fn(&peers::Weights) -> candle_core::Result<Peer>,
) -> Result<(), Box<dyn Error>> {
    let mut predictor = Predictor::<N>::new(Config::default())?;
    let mut peer = peer(&predictor.parameters()?)?;
    let prompt: Vec<i32> = (0..N_PROMPT).map(|it| (it * it * 7 + 13) % 5000).collect();
    let (mut ours, mut theirs) = (Times::default(), Times::default());
    for round in 0..=n_rounds {
        let (own_tokens, own) = run(&mut predictor, &prompt)?;
        let (their_tokens, their) = peer.run(&prompt, N_NEW)?;
        let n_alike = own_tokens.iter().zip(&their_tokens).take_while(|it| it.0 == it.1).count();
        // Rounding may choose another of two tokens that are almost equally probable.
        if n_alike < N_NEW / 2 {
            return Err(format!("{name}: the tokens differ from {n_alike} on").into());
        }
        // The first round warms caches.
        if round > 0 {
            ours.push(own);
            theirs.push(their);
        }
    }
    for (part, what) in ["prompt, s", "new tokens per second", "all, s"].into_iter().enumerate() {
        let rate = |seconds: f64| (N_NEW - 1) as f64 / seconds;
        let shown = |it: f64| if part == 1 { rate(it) } else { it };
        let (ours, theirs) = (ours.least_and_median(part), theirs.least_and_median(part));
        println!(
            "| {name} | {what} | {:.3} | {:.3} | {:.3} | {:.3} | {:.2} x |",
            shown(ours[0]),
            shown(ours[1]),
            shown(theirs[0]),
            shown(theirs[1]),
            theirs[1] / ours[1]
        );
    }
    Ok(())
}

/// Continues the prompt by the library.
fn run<N: Network>(
    predictor: &mut Predictor<N>,
    prompt: &[i32],
) -> Result<(Vec<i32>, Seconds), Box<dyn Error>> {
    let sampling = Sampling::greedy();
    let config = GenerationConfig { sampling, ..GenerationConfig::new(N_NEW, CAPACITY) };
    predictor.reset_states()?;
    let started = Instant::now();
    let mut generation = Generation::new(&[prompt], config)?;
    let mut first = 0.0;
    while !generation.is_done() {
        generation.step(predictor)?;
        if generation.text(0).len() == prompt.len() + 1 {
            first = started.elapsed().as_secs_f64();
        }
    }
    let rest = started.elapsed().as_secs_f64() - first;
    Ok((generation.text(0)[prompt.len()..].to_vec(), [first, rest]))
}
