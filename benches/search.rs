//! The compiler, from the graph to the program: `cargo bench --bench search`.
//!
//! In a user's build the same code runs unoptimised inside the macro, as it does in `cargo bench --profile dev --bench search`.

use std::{
    error::Error,
    io::{self, Write},
    time::Instant,
};

use soybean_compiler::{
    Argument, Builder, Optimizer, Options, Strategy, compile, graph::Value, optimizer,
};

#[expect(dead_code, reason = "shared with tests")]
#[path = "../soybean-compiler/tests/support/networks.rs"]
mod networks;
#[path = "support/perceptron.rs"]
mod perceptron;

use networks::{GPT, Transformer, resnet20, resnet50, vgg16};
use perceptron::perceptron;

const N_RUNS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut output = io::stdout().lock();
    writeln!(
        output,
        "{:>16} {:>6} {:>10} {:>10} {:>10} {:>15} {:>8} {:>8}",
        "model", "ranks", "strategy", "median ms", "search ms", "bytes", "gap %", "steps"
    )?;
    for n_layers in [2, 4, 10] {
        let name = format!("{n_layers} layers");
        for n_gpus in [2, 4, 8] {
            for strategy in [Strategy::Recursive, Strategy::Auto] {
                let model = || perceptron(512, 8192, n_layers);
                measure(&mut output, &name, n_gpus, strategy, &Optimizer::default(), &model)?;
            }
        }
    }
    for (name, updates, model) in networks() {
        let updates = optimizer(updates, &[]).map_err(|fault| format!("{fault:?}"))?;
        for n_gpus in [2, 4, 8] {
            measure(&mut output, name, n_gpus, Strategy::Auto, &updates, &model)?;
        }
    }
    Ok(())
}

type Model = fn() -> (Builder, Value);

/// Deep networks: name, optimiser, and what makes them.
fn networks() -> [(&'static str, &'static str, Model); 8] {
    const SMALL: Transformer = Transformer { tokens: 128, width: 256, n_heads: 4, ..GPT };
    [
        ("vgg16", "sgd", || {
            let it = vgg16(256).apply("mean", &[Argument::All]);
            (it.builder, it.here)
        }),
        ("resnet20", "sgd", || resnet20(128)),
        ("resnet50", "sgd", || resnet50(256)),
        ("encoder", "adam", || Transformer { n_blocks: 2, ..SMALL }.encoder(10)),
        ("small decoder", "adamw", || SMALL.decoder()),
        ("decoder", "adamw", || GPT.decoder()),
        ("resnet50 of 32", "adam", || resnet50(32)),
        ("decoder of 2", "adamw", || Transformer { batch: 2, ..GPT }.decoder()),
    ]
}

fn measure(
    output: &mut dyn Write,
    name: &str,
    n_gpus: usize,
    strategy: Strategy,
    optimizer: &Optimizer,
    model: &dyn Fn() -> (Builder, Value),
) -> Result<(), Box<dyn Error>> {
    let (mut all, mut searches) = (Vec::new(), Vec::new());
    let mut rest = String::new();
    for _ in 0..N_RUNS {
        let (builder, loss) = model();
        let options = Options {
            name: name.to_owned(),
            n_gpus,
            search: strategy.into(),
            precision: soybean_plan::Precision::F32,
            optimizer: *optimizer,
        };
        let started = Instant::now();
        let now = || started.elapsed().as_secs_f64() * 1e3;
        let compiled =
            compile(builder, loss, &[], &options, &now).map_err(|faults| format!("{faults:?}"))?;
        all.push(now());
        searches.push(compiled.report.milliseconds());
        let (bytes, bound) =
            (compiled.report.bytes_total, compiled.report.search().lower_bound_bytes);
        let gap = match strategy {
            Strategy::Auto => format!("{:.2}", (bytes as f64 / bound as f64 - 1.0) * 100.0),
            Strategy::Recursive | Strategy::Data | Strategy::Model => "-".to_owned(),
        };
        rest = format!("{bytes:>15} {gap:>8} {:>8}", compiled.program.train.len());
    }
    let (all, search) = (median(&mut all), median(&mut searches));
    let strategy = strategy.name();
    writeln!(output, "{name:>16} {n_gpus:>6} {strategy:>10} {all:>10.1} {search:>10.1} {rest}")?;
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
