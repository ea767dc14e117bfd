//! GPT-2 with 124 million random weights: training steps on 1, 2, 6 and 8 devices, and `check`'s
//! comparison of the first loss with the eager tensor. `cargo bench --bench gpt2_training`
//!
//! Two texts of 48 bytes are repeated, so the loss falls quickly. The largest run takes some
//! gigabytes of memory.

#[path = "../examples/networks/gpt2.rs"]
#[expect(dead_code, reason = "the network with a cache is for texts")]
mod gpt2_network;

use std::{
    env,
    error::Error,
    io::{self, Write},
    sync::Arc,
    time::Instant,
};

use soybean::{
    Config, Network, Trainer,
    runtime::{self, View},
};
use soybean_compiler::Recipe;

/// The smallest published model, without dropout.
#[soybean::model(gpus = 1, optimizer = sgd())]
mod gpt2 {
    use soybean::prelude::*;

    use super::gpt2_network::{Gpt2, gpt2};

    pub(crate) const BATCH: usize = 2;
    pub(crate) const LENGTH: usize = 48;

    pub(crate) fn forward(
        tokens: Tensor<i32, BATCH, LENGTH>,
        next: Tensor<i32, BATCH, LENGTH>,
    ) -> Tensor {
        let sizes = Gpt2 {
            vocabulary: 50257,
            n_positions: 1024,
            width: 768,
            n_heads: 12,
            n_layers: 12,
            dropout: 0.0,
        };
        gpt2(tokens, sizes).cross_entropy(next)
    }
}

const TEXT: &str = "It is a truth universally acknowledged, that a single man in possession of a \
                    good fortune, must be in want of a wife.";
const N_STEPS: usize = 5;
const LEARNING_RATE: f32 = 0.02;

fn main() -> Result<(), Box<dyn Error>> {
    let mut output = io::stdout();
    let letters: Vec<i32> = TEXT.bytes().map(i32::from).collect();
    let windows = |first: usize| -> Vec<i32> {
        let starts = (0..gpt2::BATCH).map(|it| first + it * gpt2::LENGTH);
        starts.flat_map(|it| letters[it..it + gpt2::LENGTH].to_vec()).collect()
    };
    let (tokens, next) = (windows(0), windows(1));
    let config = Config { learning_rate: LEARNING_RATE, ..Config::default() };
    if !env::args().any(|it| it == "--no-eager") {
        let mut trainer = Trainer::<gpt2::Network>::new(config.clone())?;
        let found = trainer.eager(&gpt2::Batch { tokens: &tokens, next: &next })?;
        let loss = found.outputs[0].data[0];
        writeln!(output, "eager tensor, in double precision: first loss {loss:.6}")?;
    }
    for n_gpus in [1, 2, 6, 8] {
        let mut recipe: Recipe = gpt2::Network::PLAN.recipe.parse()?;
        recipe.options.n_gpus = n_gpus;
        let compiled = recipe.compile(&|| 0.0).map_err(|faults| faults[0].message.clone())?;
        let bytes = compiled.report.bytes_total;
        let mut trainer = runtime::Trainer::new_shared(Arc::new(compiled.program), config.clone())?;
        let views = [View::I32(&tokens), View::I32(&next)];
        let started = Instant::now();
        let losses = (0..N_STEPS).map(|_| trainer.step(&views)).collect::<Result<Vec<_>, _>>()?;
        let seconds = started.elapsed().as_secs_f64() / N_STEPS as f64;
        writeln!(
            output,
            "{n_gpus} devices, {bytes} bytes predicted, {} counted, {seconds:.1} s a step: {losses:.4?}",
            trainer.moved_bytes()
        )?;
    }
    Ok(())
}
