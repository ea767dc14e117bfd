//! One model of the comparison with other frameworks: prints one JSON line of step time and memory, as `benches/peers/compare.py` reads it.
//!
//! `cargo run --release --example mlp_bench -- mlp1024 8` trains four layers of 1024 units on eight virtual devices. The number
//! of measured steps is in the environment variable `STEPS`, the number of threads in `T`.

use std::{
    env,
    error::Error,
    fs,
    io::{self, Write},
    time::Instant,
};

use soybean::{
    Batch, Config, Network,
    runtime::{Profile, Trainer, Work},
};

macro_rules! define_model {
    ($name:ident, $width:literal, $gpus:literal) => {
        /// Four layers of one width.
        #[soybean::model(gpus = $gpus)]
        pub mod $name {
            use soybean::prelude::*;

            const BATCH: usize = 512;
            const WIDTH: usize = $width;

            fn dense(x: Tensor) -> Tensor {
                x.matmul(param("w", [WIDTH, WIDTH], uniform(-0.03, 0.03)))
                    + param("b", [WIDTH], zeros())
            }

            /// The cross-entropy.
            pub fn forward(x: Tensor<f32, BATCH, WIDTH>, y: Tensor<i32, BATCH>) -> Tensor {
                let mut h = x;
                for _ in 0..3 {
                    h = dense(h).relu();
                }
                dense(h).cross_entropy(y)
            }
        }
    };
}

define_model!(mlp1024x1, 1024, 1);
define_model!(mlp1024x8, 1024, 8);
define_model!(mlp2048x1, 2048, 1);
define_model!(mlp2048x8, 2048, 8);

const BATCH: usize = 512;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let model = arguments.first().map_or("mlp1024", String::as_str);
    let n_ranks = arguments.get(1).map_or("1", String::as_str);
    match (model, n_ranks) {
        ("mlp1024", "1") => {
            measure(1024, |x, y| run::<mlp1024x1::Network>(&mlp1024x1::Batch { x, y }))
        }
        ("mlp1024", "8") => {
            measure(1024, |x, y| run::<mlp1024x8::Network>(&mlp1024x8::Batch { x, y }))
        }
        ("mlp2048", "1") => {
            measure(2048, |x, y| run::<mlp2048x1::Network>(&mlp2048x1::Batch { x, y }))
        }
        ("mlp2048", "8") => {
            measure(2048, |x, y| run::<mlp2048x8::Network>(&mlp2048x8::Batch { x, y }))
        }
        _ => {
            Err(format!("expected mlp1024 or mlp2048, then 1 or 8; found {model} {n_ranks}").into())
        }
    }
}

fn measure(
    width: usize,
    run: impl FnOnce(&[f32], &[i32]) -> Result<String, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let x: Vec<f32> =
        (0..BATCH * width).map(|it| ((it * 7919 % 2003) as f32 - 1001.0) / 578.0).collect();
    let y = (0..BATCH).map(|it| i32::try_from(it * 31 % width)).collect::<Result<Vec<i32>, _>>()?;
    Ok(writeln!(io::stdout(), "{}", run(&x, &y)?)?)
}

fn run<N: Network>(batch: &N::Batch<'_>) -> Result<String, Box<dyn Error>> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let config = Config { threads: number("T"), ..Config::default() };
    let mut trainer = Trainer::new(N::model(), config)?;
    batch.with_views(|views| {
        for _ in 0..3 {
            trainer.step(views)?;
        }
        trainer.reset_profile()?;
        let mut milliseconds = Vec::new();
        let mut loss = 0.0;
        for _ in 0..number("STEPS").unwrap_or(15) {
            let started = Instant::now();
            loss = trainer.step(views)?;
            milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
        }
        milliseconds.sort_unstable_by(f64::total_cmp);
        Ok(format!(
            "{{\"ms_median\": {:.3}, \"ms_least\": {:.3}, \"contraction_share\": {:.3}, \"resident_mb\": {}, \"loss\": {loss}}}",
            milliseconds[milliseconds.len() / 2],
            milliseconds[0],
            contraction_share(&trainer.profile()),
            resident_megabytes()
        ))
    })
}

/// The share of the time of all ranks that went into matrix products.
fn contraction_share(profiles: &[Profile]) -> f64 {
    let spent: f64 = profiles.iter().map(|it| it.spent(Work::Contraction).as_secs_f64()).sum();
    spent / profiles.iter().map(|it| it.total.as_secs_f64()).sum::<f64>()
}

/// The most memory that this process has held; 0 where the system does not tell.
fn resident_megabytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) / 1024
}
