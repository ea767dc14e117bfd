//! One model of the comparison with other frameworks. It prints a JSON line of step time and
//! memory, which `benches/peers/compare.py` reads.
//!
//! `cargo run --release --example step_bench -- mlp1024 8` trains four layers of 1024 units on
//! eight virtual devices; `cnn` and `tfm` are a convolutional network and a transformer on one, and
//! so are `unet` and `mobilenet`, two blocks of GPT-2 as `gpt2`, and one of Llama as `llama`. The
//! environment variables `STEPS` and `T` have the number of measured steps and of threads.

#[path = "networks/gpt2.rs"]
#[expect(dead_code, reason = "only the trained network is measured")]
mod gpt2_network;
#[path = "networks/llama.rs"]
#[expect(dead_code, reason = "only the trained network is measured")]
mod llama_network;

use std::{
    env,
    error::Error,
    fs,
    io::{self, Write},
    time::Instant,
};

use soybean::{
    Batch, Config, Network,
    runtime::{KernelCategory, Profile, Trainer},
};

#[path = "networks/mobilenet_v2.rs"]
mod mobilenet_v2;
#[path = "networks/unet.rs"]
mod unet;

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

define_model!(mlp1024x1, 1024, 1);
define_model!(mlp1024x8, 1024, 8);
define_model!(mlp2048x1, 2048, 1);
define_model!(mlp2048x8, 2048, 8);

/// Three pairs of convolutions, and two dense layers.
#[soybean::model(gpus = 1)]
pub mod cnn {
    use soybean::{nn, prelude::*};

    const BATCH: usize = 64;

    /// Returns the cross-entropy.
    pub fn forward(x: Tensor<f32, BATCH, 3, 32, 32>, y: Tensor<i32, BATCH>) -> Tensor {
        let mut h = x;
        for channels in [64, 128, 256] {
            h = nn::conv2d(h, channels, nn::Window { kernel: 3, stride: 1, padding: 1 }).relu();
            h = nn::conv2d(h, channels, nn::Window { kernel: 3, stride: 1, padding: 1 })
                .relu()
                .max_pool2d(2, 2, 0);
        }
        nn::linear(nn::linear(h.flatten(), 512).relu(), 10).cross_entropy(y)
    }
}

/// MobileNetV2 with the widths of the paper.
#[soybean::model(gpus = 1)]
pub mod mobilenet {
    use soybean::prelude::*;

    use super::mobilenet_v2::{MobileNetV2, mobilenet_v2};

    /// Returns the cross-entropy.
    pub fn forward(x: Tensor<f32, 16, 3, 96, 96>, y: Tensor<i32, 16>) -> Tensor {
        let sizes = MobileNetV2 { width: 32, n_classes: 10, dropout: 0.0 };
        mobilenet_v2(x, sizes).cross_entropy(y)
    }
}

/// U-Net with a quarter of the widths of the paper.
#[soybean::model(gpus = 1)]
pub mod unet_of_pixels {
    use soybean::prelude::*;

    use super::unet::{UNet, unet};

    /// Returns the cross-entropy.
    pub fn forward(x: Tensor<f32, 4, 3, 96, 96>, y: Tensor<i32, 4, 96, 96>) -> Tensor {
        let logits = unet(x, UNet { width: 16, n_levels: 4, n_classes: 2 });
        logits.permute([0, 2, 3, 1]).cross_entropy(y)
    }
}

/// Four pre-norm decoder blocks.
#[soybean::model(gpus = 1)]
pub mod tfm {
    use soybean::{nn, prelude::*};

    const BATCH: usize = 16;
    const TOKENS: usize = 128;
    const WORDS: usize = 1024;
    const WIDTH: usize = 256;

    /// Returns the cross-entropy.
    pub fn forward(x: Tensor<i32, BATCH, TOKENS>, y: Tensor<i32, { BATCH * TOKENS }>) -> Tensor {
        let mut h = nn::embedding(x, nn::Embedding { vocabulary: WORDS, width: WIDTH })
            + param("places", [TOKENS, WIDTH], normal(0.02));
        for _ in 0..4 {
            h += nn::multi_head_attention(
                nn::layer_norm(h),
                nn::MultiHeadAttention { n_heads: 4, mask: "causal" },
            );
            h += nn::linear(nn::linear(nn::layer_norm(h), 4 * WIDTH).gelu_tanh(), WIDTH);
        }
        let logits = nn::linear(nn::layer_norm(h), WORDS);
        logits.reshape([BATCH * TOKENS, WORDS]).cross_entropy(y)
    }
}

macro_rules! define_language_model {
    ($name:ident, $module:ident, |$x:ident| $network:expr) => {
        /// A language model of texts with 256 tokens.
        #[soybean::model(gpus = 1)]
        pub mod $name {
            use soybean::prelude::*;

            use super::$module;

            /// Returns the cross-entropy.
            pub fn forward($x: Tensor<i32, 4, 256>, y: Tensor<i32, 4, 256>) -> Tensor {
                $network.cross_entropy(y)
            }
        }
    };
}

define_language_model!(gpt2, gpt2_network, |x| gpt2_network::gpt2(
    x,
    gpt2_network::Gpt2 {
        vocabulary: 8192,
        n_positions: 256,
        width: 768,
        n_heads: 12,
        n_layers: 2,
        dropout: 0.0,
    }
));
define_language_model!(llama, llama_network, |x| llama_network::llama(
    x,
    llama_network::Llama {
        vocabulary: 8192,
        width: 1024,
        hidden: 2816,
        n_heads: 16,
        n_key_value_heads: 4,
        n_layers: 1,
        rope_theta: 10000.0,
        eps: 1e-5,
    }
));

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let model = arguments.first().map_or("mlp1024", String::as_str);
    let n_ranks = arguments.get(1).map_or("1", String::as_str);
    let line = match (model, n_ranks) {
        ("mlp1024", "1") => run::<mlp1024x1::Network>(&mlp1024x1::Batch {
            x: &noise(512 * 1024),
            y: &labels(512, 1024)?,
        }),
        ("mlp1024", "8") => run::<mlp1024x8::Network>(&mlp1024x8::Batch {
            x: &noise(512 * 1024),
            y: &labels(512, 1024)?,
        }),
        ("mlp2048", "1") => run::<mlp2048x1::Network>(&mlp2048x1::Batch {
            x: &noise(512 * 2048),
            y: &labels(512, 2048)?,
        }),
        ("mlp2048", "8") => run::<mlp2048x8::Network>(&mlp2048x8::Batch {
            x: &noise(512 * 2048),
            y: &labels(512, 2048)?,
        }),
        ("cnn", "1") => {
            run::<cnn::Network>(&cnn::Batch { x: &noise(64 * 3 * 32 * 32), y: &labels(64, 10)? })
        }
        ("mobilenet", "1") => run::<mobilenet::Network>(&mobilenet::Batch {
            x: &noise(16 * 3 * 96 * 96),
            y: &labels(16, 10)?,
        }),
        ("unet", "1") => run::<unet_of_pixels::Network>(&unet_of_pixels::Batch {
            x: &noise(4 * 3 * 96 * 96),
            y: &labels(4 * 96 * 96, 2)?,
        }),
        ("tfm", "1") => {
            run::<tfm::Network>(&tfm::Batch { x: &labels(2048, 1024)?, y: &labels(2048, 1023)? })
        }
        ("gpt2", "1") => {
            run::<gpt2::Network>(&gpt2::Batch { x: &labels(1024, 8192)?, y: &labels(1024, 8191)? })
        }
        ("llama", "1") => {
            run::<llama::Network>(&llama::Batch { x: &labels(1024, 8192)?, y: &labels(1024, 8191)? })
        }
        _ => Err(format!(
            "expected mlp1024 or mlp2048 and 1 or 8, or cnn, tfm, unet, mobilenet, gpt2 or llama and 1; found {model} {n_ranks}"
        )
        .into()),
    };
    Ok(writeln!(io::stdout(), "{}", line?)?)
}

fn noise(n: usize) -> Vec<f32> {
    (0..n).map(|it| ((it * 7919 % 2003) as f32 - 1001.0) / 578.0).collect()
}

fn labels(n: usize, n_classes: usize) -> Result<Vec<i32>, Box<dyn Error>> {
    Ok((0..n).map(|it| i32::try_from(it * 31 % n_classes)).collect::<Result<_, _>>()?)
}

fn run<N: Network>(batch: &N::Batch<'_>) -> Result<String, Box<dyn Error>> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let config = Config { threads: number("T"), ..Config::default() };
    let mut trainer = Trainer::new(N::model(), config)?;
    let line = batch.with_views(|views| {
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
        let profiles = trainer.profile();
        let shares: Vec<String> = KernelCategory::ALL
            .iter()
            .map(|work| format!("\"{}\": {:.3}", work.name(), share(&profiles, *work)))
            .collect();
        Ok(format!(
            "{{\"ms_median\": {:.3}, \"ms_least\": {:.3}, \"shares\": {{{}}}, \"resident_mb\": {}, \"loss\": {loss}}}",
            milliseconds[milliseconds.len() / 2],
            milliseconds[0],
            shares.join(", "),
            resident_megabytes()
        ))
    })?;
    Ok(line)
}

/// Returns the fraction of the time of all ranks that was spent on work of this kind.
fn share(profiles: &[Profile], work: KernelCategory) -> f64 {
    let spent: f64 = profiles.iter().map(|it| it.spent(work).as_secs_f64()).sum();
    spent / profiles.iter().map(|it| it.total.as_secs_f64()).sum::<f64>()
}

/// Returns the peak memory of this process; 0 if the system does not report it.
fn resident_megabytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) / 1024
}
