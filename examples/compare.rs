//! One model under all four strategies: moved bytes, memory and time. `cargo run --release
//! --example compare`.

use std::{
    error::Error,
    io::{self, Write},
    time::Instant,
};

use soybean::{Config, Network, Trainer};

macro_rules! define_model {
    ($name:ident, $strategy:literal) => {
        /// Four layers, planned by one strategy.
        #[soybean::model(gpus = 8, strategy = $strategy, optimizer = sgd(momentum = 0.9))]
        pub mod $name {
            use soybean::prelude::*;

            /// Samples in a batch.
            pub const BATCH: usize = 128;
            /// Units of every layer.
            pub const WIDTH: usize = 512;

            fn dense(x: Tensor) -> Tensor {
                x.matmul(param("w", [WIDTH, x.dim(1)], he_normal()).transpose())
                    + param("b", [WIDTH], zeros())
            }

            /// Returns the cross-entropy.
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

define_model!(auto, "auto");
define_model!(recursive, "recursive");
define_model!(data, "data");
define_model!(model, "model");

const N_STEPS: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut output = io::stdout().lock();
    writeln!(output, "4 layers of {} units, batch {}, 8 devices", auto::WIDTH, auto::BATCH)?;
    writeln!(
        output,
        "{:<10} {:>14} {:>10} {:>16} {:>11}",
        "strategy", "MB per step", "ms", "MB per device", "loss"
    )?;
    let x: Vec<f32> = (0..auto::BATCH * auto::WIDTH).map(|it| (it % 13) as f32 / 13.0).collect();
    let y: Vec<i32> = (0..).take(auto::BATCH).collect();
    measure::<auto::Network>(&mut output, &auto::Batch { x: &x, y: &y })?;
    measure::<recursive::Network>(&mut output, &recursive::Batch { x: &x, y: &y })?;
    measure::<data::Network>(&mut output, &data::Batch { x: &x, y: &y })?;
    measure::<model::Network>(&mut output, &model::Batch { x: &x, y: &y })?;
    Ok(())
}

/// Trains some steps and writes one row of the table.
fn measure<N: Network>(output: &mut dyn Write, batch: &N::Batch<'_>) -> Result<(), Box<dyn Error>> {
    let mut trainer = Trainer::<N>::new(Config::default())?;
    trainer.step(batch)?;
    let mut milliseconds = Vec::new();
    let mut loss = 0.0;
    for _ in 0..N_STEPS {
        let started = Instant::now();
        loss = trainer.step(batch)?;
        milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
    }
    milliseconds.sort_unstable_by(f64::total_cmp);
    writeln!(
        output,
        "{:<10} {:>14.3} {:>10.2} {:>16.2} {:>11.6}",
        N::PLAN.strategy,
        trainer.moved_bytes() as f64 / 1e6,
        milliseconds[N_STEPS / 2],
        N::PLAN.peak_memory_bytes_per_gpu as f64 / 1e6,
        loss
    )?;
    Ok(())
}
