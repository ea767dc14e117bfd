//! Plans of language models on 8 GPUs with 80 GiB each: the rows of `docs/language-models.md`.
//!
//! Each model is compiled again from its recipe, so that the time is that of an optimized search.
//! Its weights are never allocated. `cargo bench --bench language_models`

#[path = "../examples/networks/gpt2.rs"]
#[expect(dead_code, reason = "the example's other network is not needed")]
mod gpt2;
#[path = "../examples/networks/llama.rs"]
#[expect(dead_code, reason = "the names of the files' tensors are not needed")]
mod llama;

use std::{
    error::Error,
    io::{self, Write},
    time::Instant,
};

use soybean::plan::Plan;
use soybean_compiler::Recipe;
use soybean_plan::readable_bytes;

/// GPT-2 with 124 million parameters. Source: Radford et al. 2019.
#[soybean::model(gpus = 8, precision = "bf16", memory = "80GiB", optimizer = adamw())]
mod gpt2_124m {
    use soybean::prelude::*;

    use super::gpt2::{Gpt2, gpt2};

    pub(crate) fn forward(tokens: Tensor<i32, 64, 1024>, next: Tensor<i32, 64, 1024>) -> Tensor {
        let sizes = Gpt2 {
            vocabulary: 50257,
            n_positions: 1024,
            width: 768,
            n_heads: 12,
            n_layers: 12,
            dropout: 0.1,
        };
        gpt2(tokens, sizes).cross_entropy(next)
    }
}

/// Llama 3 with 8 billion parameters. Source: Dubey et al. 2024.
#[soybean::constant]
const LLAMA3_8B: llama::Llama = llama::Llama {
    vocabulary: 128256,
    width: 4096,
    hidden: 14336,
    n_heads: 32,
    n_key_value_heads: 8,
    n_layers: 32,
    rope_theta: 500_000.0,
    eps: 1e-5,
};

/// Its training with texts of 8192 tokens.
#[soybean::model(gpus = 8, precision = "bf16", memory = "80GiB", optimizer = adamw())]
mod llama3_8b {
    use soybean::prelude::*;

    use super::{LLAMA3_8B, llama::llama};

    pub(crate) fn forward(tokens: Tensor<i32, 8, 8192>, next: Tensor<i32, 8, 8192>) -> Tensor {
        llama(tokens, LLAMA3_8B).cross_entropy(next)
    }
}

/// Eight blocks of the widths of Mixtral 8x7B, with experts of two matrices and a GELU instead of
/// three and `SwiGLU`. Source: Jiang et al. 2024.
#[soybean::model(gpus = 8, precision = "bf16", memory = "80GiB", optimizer = adamw())]
mod experts {
    use soybean::{nn, prelude::*};

    const LAYERS: usize = 8;

    pub(crate) fn forward(tokens: Tensor<i32, 8, 512>, next: Tensor<i32, 8, 512>) -> Tensor {
        let mut h = nn::embedding(tokens, nn::Embedding { vocabulary: 32000, width: 4096 });
        let mut balance = full([], 0.0);
        for _ in 0..LAYERS {
            h += nn::grouped_query_attention(
                nn::rms_norm_with(h, 1e-5),
                nn::GroupedQueryAttention { n_heads: 32, n_key_value_heads: 8, rope_theta: 1e6 },
            );
            let x = nn::rms_norm_with(h, 1e-5).reshape([4096, 4096]);
            let options = nn::MixtureOfExperts {
                n_experts: 8,
                hidden: 14336,
                n_chosen: 2,
                capacity_factor: 1.25,
                n_groups: 0,
            };
            let (y, loss) = nn::mixture_of_experts(x, options);
            h += y.reshape([8, 512, 4096]);
            balance += loss;
        }
        let logits = nn::linear_without_bias(nn::rms_norm_with(h, 1e-5), 32000);
        logits.cross_entropy(next) + 0.01 * balance
    }
}

macro_rules! chats {
    ($($name:ident of $batch:literal in $memory:literal;)*) => {
        $(/// The same model, which reads prompts of 512 tokens and adds 512 tokens.
        #[soybean::model(
            gpus = 8,
            precision = "bf16",
            memory = $memory,
            mode = "inference",
            entries = (prefill = 1, decode = 512)
        )]
        mod $name {
            use soybean::prelude::*;

            use super::{LLAMA3_8B, llama::cached::llama};

            pub(crate) fn prefill(
                tokens: Tensor<i32, $batch, 512>,
                n_before: Tensor<i32, $batch>,
            ) -> Tensor {
                llama(tokens, n_before, LLAMA3_8B, 1024)
            }

            pub(crate) fn decode(
                tokens: Tensor<i32, $batch, 1>,
                n_before: Tensor<i32, $batch>,
            ) -> Tensor {
                llama(tokens, n_before, LLAMA3_8B, 1024)
            }
        })*
    };
}

chats! {
    chat_of_eight of 8 in "80GiB";
    chat_of_eight_in_24_gib of 8 in "24GiB";
    chat_of_one of 1 in "80GiB";
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut output = io::stdout();
    writeln!(output, "| model | bytes | proof | data | model | memory of a GPU | search, s |")?;
    writeln!(output, "| --- | ---: | --- | ---: | ---: | ---: | ---: |")?;
    let plans: [(&str, &Plan); 6] = [
        ("GPT-2 124M, 64 x 1024 tokens, training step", &gpt2_124m::Trainer::PLAN),
        ("Llama 3 8B, 8 x 8192 tokens, training step", &llama3_8b::Trainer::PLAN),
        (
            "8 blocks of experts as in Mixtral, 8 x 512 tokens, training step",
            &experts::Trainer::PLAN,
        ),
        ("Llama 3 8B, chat of 8 texts", &chat_of_eight::Predictor::PLAN),
        ("Llama 3 8B, chat of 8 texts, 24 GiB", &chat_of_eight_in_24_gib::Predictor::PLAN),
        ("Llama 3 8B, chat of 1 text", &chat_of_one::Predictor::PLAN),
    ];
    for (name, plan) in plans {
        writeln!(output, "{}", row(name, plan)?)?;
    }
    Ok(())
}

fn row(name: &str, plan: &Plan) -> Result<String, Box<dyn Error>> {
    let recipe: Recipe = plan.recipe.parse()?;
    let start = Instant::now();
    let compiled = recipe.compile(&|| start.elapsed().as_secs_f64() * 1e3);
    let report = compiled.map_err(|faults| faults[0].message.clone())?.report;
    let proof = match report.gap() {
        Some(0.0) => "optimal".to_owned(),
        Some(gap) => format!("within {:.1} %", 100.0 * gap),
        None => "none".to_owned(),
    };
    let baselines = report.search().baselines;
    let ratio = |bytes: u64| match (bytes, report.bytes_total) {
        (0, _) | (_, 0) => readable_bytes(bytes),
        (bytes, total) => format!("{:.2} x", bytes as f64 / total as f64),
    };
    Ok(format!(
        "| {name} | {} | {proof} | {} | {} | {} | {:.2} |",
        readable_bytes(report.bytes_total),
        ratio(baselines.data),
        ratio(baselines.model),
        readable_bytes(report.peak_memory_bytes_per_gpu),
        report.milliseconds() / 1e3
    ))
}
