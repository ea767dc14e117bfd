//! A GAN draws handwritten digits on eight devices: `cargo run --release --example gan`.
//!
//! Two entries of one model are trained in turn: the discriminator learns to tell the 8 x 8 images
//! of the example `digits` from made ones, and the generator learns to deceive it. The last lines
//! are the distances of made images to the nearest real ones, and the file of some made images.
//! `-- plan` shows the plan, `-- check` compares the steps of both entries with the functions, and
//! `-- --help` lists the flags.

#[path = "data/digits.rs"]
mod data;

use std::{
    env,
    error::Error,
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use lexopt::{Arg, Parser, ValueExt};
use soybean::{
    Config, DataOptions, TrainConfig,
    data::{DataLoader, Dataset, LoaderOptions},
    plan::random::{mixed, next_state},
};

/// Both networks and their losses. Source: Goodfellow et al. 2014, with the loss of the generator
/// that does not saturate.
#[soybean::model(
    gpus = 8,
    optimizer = adam(betas = (0.5, 0.999)),
    entries = (discriminator(freeze = ["maker.*"]), generator(freeze = ["critic.*"]))
)]
pub mod gan {
    use soybean::{nn, prelude::*};

    /// Images in a batch.
    pub const BATCH: usize = 64;
    /// Pixels of an image.
    pub const PIXELS: usize = 64;
    /// Random numbers that become an image.
    pub const NOISE: usize = 16;

    /// Images from noise, with pixels from 0 to 1.
    fn maker(z: Tensor) -> Tensor {
        let mut h = z;
        for _ in 0..2 {
            h = nn::linear(h, 256).leaky_relu(0.2);
        }
        nn::linear(h, PIXELS).sigmoid()
    }

    /// A number for each image that is large if it looks real.
    fn critic(x: Tensor) -> Tensor {
        let mut h = x;
        for _ in 0..2 {
            h = nn::linear(h, 256).leaky_relu(0.2).dropout(0.3);
        }
        nn::linear(h, 1)
    }

    /// Returns the cross-entropy of real and of made images.
    pub fn discriminator(real: Tensor<f32, BATCH, PIXELS>, z: Tensor<f32, BATCH, NOISE>) -> Tensor {
        let scores = critic(concat([real, maker(z)], 0));
        let (good, bad) = (scores.slice(0, 0, BATCH), scores.slice(0, BATCH, 2 * BATCH));
        (-good).softplus().mean(..) + bad.softplus().mean(..)
    }

    /// Returns the cross-entropy of made images that shall be taken for real ones, and the images.
    pub fn generator(z: Tensor<f32, BATCH, NOISE>) -> (Tensor, Tensor) {
        let made = maker(z);
        ((-critic(made)).softplus().mean(..), made)
    }
}

const HELP: &str = "Usage: gan [plan|check] [flags]

Trains a generator of handwritten digits against a discriminator, and writes images that it makes.
`gan plan --help` and `gan check --help` list the flags of these commands.

  --epochs N  the number of passes over the real images (200)
  --quick     as --epochs 5
  --seed N    the seed of weights, noise and order (0)
  --out DIR   the folder of samples.pgm (target/gan)
";

struct Options {
    n_epochs: u64,
    seed: u64,
    out: PathBuf,
}

fn main() -> ExitCode {
    if matches!(env::args().nth(1).as_deref(), Some("plan" | "check")) {
        return gan::Trainer::command_line_with(TrainConfig::new(1, LEARNING_RATE), data::load);
    }
    let output = &mut io::stdout();
    let run = options().and_then(|options| match options {
        Some(options) => train_and_draw(&options, output),
        None => Ok(write!(output, "{HELP}")?),
    });
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed too, the exit code remains.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads the flags; returns nothing if they ask for help.
fn options() -> Result<Option<Options>, Box<dyn Error>> {
    let mut options = Options { n_epochs: 200, seed: 0, out: PathBuf::from("target/gan") };
    let mut parser = Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Long("epochs") => options.n_epochs = parser.value()?.parse()?,
            Arg::Long("quick") => options.n_epochs = 5,
            Arg::Long("seed") => options.seed = parser.value()?.parse()?,
            Arg::Long("out") => options.out = parser.value()?.into(),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Some(options))
}

const LEARNING_RATE: f32 = 0.0004;

fn train_and_draw(options: &Options, output: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let Options { n_epochs, seed, ref out } = *options;
    let split = data::load(&DataOptions { seed, ..DataOptions::default() })?;
    let config = Config { learning_rate: LEARNING_RATE, seed, ..Config::default() };
    let mut trainer = gan::Trainer::new(config)?;
    writeln!(output, "{}\n{}", gan::Trainer::PLAN.text, trainer.device_line())?;
    let mut noise = Noise(seed);
    let fixed = noise.batch();
    let before = trainer.predict(&gan::Generator { z: &fixed })?.remove(0).data;
    let mut loader =
        DataLoader::new(Arc::clone(&split.train), LoaderOptions::training(gan::BATCH, seed))?;
    for epoch in 0..n_epochs {
        loader.start(epoch, 0);
        let (mut of_critic, mut of_maker, mut n_steps) = (0.0, 0.0, 0.0);
        for batch in &mut loader {
            let (batch, z) = (batch?, noise.batch());
            of_critic += trainer.step(&gan::Discriminator { real: batch.f32s(0), z: &z })?;
            of_maker += trainer.step(&gan::Generator { z: &z })?;
            n_steps += 1.0;
        }
        if (epoch + 1) % n_epochs.div_ceil(10) == 0 {
            let (of_critic, of_maker) = (of_critic / n_steps, of_maker / n_steps);
            writeln!(
                output,
                "epoch {}: loss {of_critic:.3} of the discriminator, {of_maker:.3} of the generator",
                epoch + 1
            )?;
        }
    }
    let made = trainer.predict(&gan::Generator { z: &fixed })?.remove(0).data;
    let real = images(&split.train)?;
    let [before, after, held_out] =
        [&before, &made, &images(&split.held_out)?].map(|it| distance(it, &real));
    writeln!(
        output,
        "distance to the nearest real image: {after:.3}, {before:.3} before training, {held_out:.3} of held-out images"
    )?;
    fs::create_dir_all(out)?;
    let file = out.join("samples.pgm");
    fs::write(&file, picture(&made))?;
    writeln!(output, "{} made images in {}", gan::BATCH, file.display())?;
    Ok(())
}

/// Random numbers from -1 to 1.
struct Noise(u64);

impl Noise {
    fn batch(&mut self) -> Vec<f32> {
        let mut number = || {
            self.0 = next_state(self.0);
            // The upper 24 bits are exact in single precision.
            (mixed(self.0) >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..gan::BATCH * gan::NOISE).map(|_| number()).collect()
    }
}

/// Returns the pixels of all images of a data set.
fn images(dataset: &Arc<dyn Dataset>) -> Result<Vec<f32>, soybean::Error> {
    let n_images = dataset.n_rows();
    let mut loader = DataLoader::new(Arc::clone(dataset), LoaderOptions::evaluation(n_images))?;
    loader.start(0, 0);
    let mut pixels = Vec::new();
    for batch in loader {
        pixels.extend_from_slice(batch?.f32s(0));
    }
    Ok(pixels)
}

/// Returns the mean over images of the root mean square distance to the nearest other image.
fn distance(images: &[f32], others: &[f32]) -> f32 {
    let square = |image: &[f32], other: &[f32]| -> f32 {
        image.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum()
    };
    let nearest = |image: &[f32]| {
        let squares = others.chunks(gan::PIXELS).map(|other| square(image, other));
        (squares.fold(f32::INFINITY, f32::min) / gan::PIXELS as f32).sqrt()
    };
    let n_images = images.len() / gan::PIXELS;
    images.chunks(gan::PIXELS).map(nearest).sum::<f32>() / n_images as f32
}

/// Returns images in rows of eight as a binary PGM file, each pixel four times as large.
fn picture(images: &[f32]) -> Vec<u8> {
    const SIDE: usize = 8;
    const COLUMNS: usize = 8;
    const SCALE: usize = 4;
    /// With a margin.
    const CELL: usize = SCALE * (SIDE + 1);
    let (width, height) = (COLUMNS * CELL, images.len() / gan::PIXELS / COLUMNS * CELL);
    let mut file = format!("P5 {width} {height} 255\n").into_bytes();
    file.extend((0..width * height).map(|at| {
        let (row, column) = (at / width, at % width);
        let (y, x) = (row % CELL / SCALE, column % CELL / SCALE);
        if y == SIDE || x == SIDE {
            return 0;
        }
        let image = row / CELL * COLUMNS + column / CELL;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "pixels are between 0 and 1"
        )]
        let gray = (255.0 * images[image * gan::PIXELS + y * SIDE + x]).round() as u8;
        gray
    }));
    file
}
