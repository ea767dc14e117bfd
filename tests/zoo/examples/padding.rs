//! Plans of networks whose dims the GPUs do not divide: the tables of `docs/any-number.md`.
//!
//! `cargo run --release -p soybean-zoo --example padding -- gpus [NETWORK..]` compares plans with
//! and without padding on each number of GPUs from 1 to 16, by time. `-- shapes` compares networks
//! with the same networks at sizes that the GPUs divide, by bytes.

use std::{
    error::Error,
    io::{self, Write},
    time::Instant,
};

use soybean_cluster::preset;
use soybean_compiler::{
    Compiled, MAX_WORK, Objective, Options, Padding, SearchRequest, compile, optimizer,
};
use soybean_plan::Precision;
use soybean_zoo::{GPT, Model, Transformer, alexnet, perceptron, resnet50, vgg16};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A network, and the same one at sizes that the GPUs divide.
struct Pair {
    name: &'static str,
    n_gpus: usize,
    precision: Precision,
    optimizer: &'static str,
    models: [fn() -> Model; 2],
}

const GPT_12: Transformer = Transformer { batch: 8, ..GPT };
/// GPT-2 small with its own vocabulary. Source: Radford et al. 2019.
const GPT_2: Transformer = Transformer { n_words: 50_257, ..GPT_12 };
/// GPT-2 XL. Source: Radford et al. 2019.
const GPT_2_XL: Transformer =
    Transformer { batch: 1, width: 1600, n_heads: 25, n_blocks: 48, ..GPT_2 };

/// The name of a network, its optimizer, and the function that builds it.
type Network = (&'static str, &'static str, fn() -> Model);

const NETWORKS: [Network; 4] = [
    ("vgg16", "sgd", || vgg16(64)),
    ("alexnet", "sgd", || alexnet(256)),
    ("resnet50", "sgd", || resnet50(256)),
    ("gpt-12", "adamw", || GPT_12.decoder()),
];

const PAIRS: [Pair; 9] = [
    Pair {
        name: "GPT-2 small, 50,257 -> 50,304 words",
        n_gpus: 8,
        precision: Precision::F32,
        optimizer: "adamw",
        models: [|| GPT_2.decoder(), || GPT_12.decoder()],
    },
    Pair {
        name: "the same in bf16",
        n_gpus: 8,
        precision: Precision::Bf16,
        optimizer: "adamw",
        models: [|| GPT_2.decoder(), || GPT_12.decoder()],
    },
    Pair {
        name: "the same, batch 7 -> 8",
        n_gpus: 8,
        precision: Precision::F32,
        optimizer: "adamw",
        models: [|| Transformer { batch: 7, ..GPT_2 }.decoder(), || GPT_12.decoder()],
    },
    Pair {
        name: "GPT-2 XL, batch 1, 25 -> 32 heads, 50,257 -> 50,304 words",
        n_gpus: 8,
        precision: Precision::F32,
        optimizer: "adamw",
        models: [
            || GPT_2_XL.decoder(),
            || Transformer { n_words: 50_304, ..GPT_2_XL }.decoder_with_heads(32),
        ],
    },
    Pair {
        name: "the same, 25 -> 24 heads",
        n_gpus: 8,
        precision: Precision::F32,
        optimizer: "adamw",
        models: [
            || GPT_2_XL.decoder(),
            || Transformer { n_words: 50_304, ..GPT_2_XL }.decoder_with_heads(24),
        ],
    },
    Pair {
        name: "ResNet-50, batch 7 -> 8",
        n_gpus: 8,
        precision: Precision::F32,
        optimizer: "sgd",
        models: [|| resnet50(7), || resnet50(8)],
    },
    Pair {
        name: "perceptron of 4 x 8191 -> 8192, batch 512",
        n_gpus: 8,
        precision: Precision::F32,
        optimizer: "sgd",
        models: [|| perceptron(512, &[8191; 5]), || perceptron(512, &[8192; 5])],
    },
    Pair {
        name: "perceptron of 784-300-100-10 -> 784-304-104-16, batch 128",
        n_gpus: 8,
        precision: Precision::F32,
        optimizer: "sgd",
        models: [
            || perceptron(128, &[784, 300, 100, 10]),
            || perceptron(128, &[784, 304, 104, 16]),
        ],
    },
    Pair {
        name: "GPT-2 small, batch 8 -> 9, 50,304 words, 3 GPUs",
        n_gpus: 3,
        precision: Precision::F32,
        optimizer: "adamw",
        models: [|| GPT_12.decoder(), || Transformer { batch: 9, ..GPT }.decoder()],
    },
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|it| name.contains(it));
    let mut output = io::stdout().lock();
    match arguments.first().map(String::as_str) {
        Some("gpus") => {
            let heads = "GPUs | unpadded, ms | MB | work | compiled in, s | padded, ms | MB | work | compiled in, s";
            for (name, optimizer, model) in NETWORKS.iter().filter(|it| is_wanted(it.0)) {
                writeln!(output, "\n{name}\n\n| {heads} |\n|{}", " ---: |".repeat(9))?;
                for n_gpus in 1..=16 {
                    writeln!(output, "| {n_gpus} | {} |", row(optimizer, *model, n_gpus)?)?;
                }
            }
        }
        Some("shapes") => {
            let heads = "unpadded, MB | work | padded, MB | work | with max_work = 1.2, MB | work";
            writeln!(output, "| network | {heads} | divided, MB | ratio | of times |")?;
            writeln!(output, "| --- |{}", " ---: |".repeat(9))?;
            for pair in PAIRS.iter().filter(|it| is_wanted(it.name)) {
                writeln!(output, "| {} | {} |", pair.name, pair.row()?)?;
            }
        }
        _ => return Err("expected `gpus` or `shapes`, then names of networks".into()),
    }
    Ok(())
}

impl Pair {
    /// Returns the cells of a row: bytes and work without padding, with it, and with it and more
    /// work; then bytes and the ratio of the last two, and of their predicted times.
    fn row(&self) -> Result<String> {
        let of = |model: fn() -> Model, padding: Padding, max_work: f64| {
            let cluster = preset("dgx-h100");
            let request = SearchRequest { cluster, padding, max_work, ..SearchRequest::default() };
            compiled(self.optimizer, model, self.n_gpus, self.precision, request)
        };
        let [own, divided] = self.models;
        let unpadded = of(own, Padding::Off, MAX_WORK).ok();
        let (padded, heavier) = (of(own, Padding::Auto, MAX_WORK)?, of(own, Padding::Auto, 1.2)?);
        let divided = of(divided, Padding::Off, MAX_WORK)?;
        let bytes = |it: &Compiled| it.report.bytes_total as f64;
        let (of_bytes, of_times) =
            (bytes(&heavier) / bytes(&divided), milliseconds(&heavier) / milliseconds(&divided));
        let cells = [unpadded.as_ref(), Some(&padded), Some(&heavier)].map(megabytes_and_work);
        let divided = bytes(&divided) / 1e6;
        Ok(format!("{} | {divided:.1} | {of_bytes:.3} | {of_times:.3}", cells.join(" | ")))
    }
}

fn row(optimizer: &str, model: fn() -> Model, n_gpus: usize) -> Result<String> {
    let name = if n_gpus > 8 { "2x8-h100-ib" } else { "dgx-h100" };
    let cells = |padding: Padding| {
        let (cluster, objective) = (preset(name), Objective::Time);
        let request = SearchRequest { cluster, objective, padding, ..SearchRequest::default() };
        let start = Instant::now();
        let compiled = compiled(optimizer, model, n_gpus, Precision::F32, request);
        let seconds = start.elapsed().as_secs_f64();
        compiled.map(|it| {
            let cells = megabytes_and_work(Some(&it));
            format!("{:.1} | {cells} | {seconds:.2}", milliseconds(&it))
        })
    };
    let unpadded = cells(Padding::Off).unwrap_or_else(|_| "- | - | - | -".to_owned());
    Ok(format!("{unpadded} | {}", cells(Padding::Auto)?))
}

/// Returns the predicted time of a step.
fn milliseconds(compiled: &Compiled) -> f64 {
    1e3 * compiled.report.prediction.as_ref().map_or(0.0, |it| it.seconds)
}

fn megabytes_and_work(compiled: Option<&Compiled>) -> String {
    compiled.map_or("- | -".to_owned(), |it| {
        format!("{:.1} | {:.2}", it.report.bytes_total as f64 / 1e6, it.report.work)
    })
}

fn compiled(
    of_optimizer: &str,
    model: fn() -> Model,
    n_gpus: usize,
    precision: Precision,
    search: SearchRequest,
) -> Result<Compiled> {
    let Model { builder, loss, .. } = model();
    let optimizer = optimizer(of_optimizer, &[]).map_err(|it| it.message)?;
    let options = Options { name: "network".to_owned(), n_gpus, search, precision, optimizer };
    compile(builder, loss, &[], &options, &|| 0.0).map_err(|faults| format!("{faults:?}").into())
}
