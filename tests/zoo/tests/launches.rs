//! What a training step of large networks launches on a GPU, and `docs/launches.md`, which lists it.

use soybean_compiler::{Argument, Compiled, Optimizer, Options, Strategy, optimizer};
use soybean_plan::{Kernel, Precision, Program};
use soybean_runtime::{LaunchRow, LaunchSummary, queued_tasks};
use soybean_zoo::{GPT, Model, Transformer, alexnet, perceptron, vgg16};

/// A network, and the numbers of launches and of bytes before launches were fused, in bf16 and in
/// tf32.
struct Network {
    name: &'static str,
    model: fn() -> Model,
    optimizer: fn() -> Optimizer,
    before: [(usize, f64); 2],
}

fn sgd() -> Optimizer {
    optimizer("sgd", &[("momentum".to_owned(), Argument::Float(0.9))]).unwrap()
}

fn adamw() -> Optimizer {
    optimizer("adamw", &[]).unwrap()
}

const NETWORKS: [Network; 4] = [
    Network {
        name: "perceptron 4 x 8192, batch 512",
        model: || perceptron(512, &[8192; 5]),
        optimizer: sgd,
        before: [(0, 0.0), (0, 0.0)],
    },
    Network {
        name: "AlexNet, batch 256",
        model: || alexnet(256),
        optimizer: sgd,
        before: [(0, 0.0), (0, 0.0)],
    },
    Network {
        name: "VGG-16, batch 256",
        model: || vgg16(256),
        optimizer: sgd,
        before: [(0, 0.0), (0, 0.0)],
    },
    Network {
        name: "GPT-2 small, 8 x 1024",
        model: || Transformer { batch: 8, ..GPT }.decoder(),
        optimizer: adamw,
        before: [(0, 0.0), (0, 0.0)],
    },
];

fn compiled(network: &Network, precision: Precision) -> Compiled {
    let Model { builder, loss, .. } = (network.model)();
    let options = Options {
        name: "model".to_owned(),
        n_gpus: 1,
        search: Strategy::Auto.into(),
        precision,
        optimizer: (network.optimizer)(),
    };
    soybean_compiler::compile(builder, loss, &[], &options, &|| 0.0).unwrap()
}

fn summary(program: &Program) -> LaunchSummary {
    let device = soybean_cluster::preset("dgx-h100").unwrap().device;
    let tasks = queued_tasks(program, 0).unwrap();
    LaunchSummary::new(&tasks, &device, program.tables.precision)
}

#[test]
fn the_page_lists_the_launches() {
    let mut text = String::new();
    for network in &NETWORKS {
        for (precision, before) in [Precision::Bf16, Precision::Tf32].into_iter().zip(network.before) {
            let program = compiled(network, precision).program;
            let summary = summary(&program);
            let LaunchRow { n_launches, bytes, seconds, .. } = summary.total();
            let n_permuted = program.train[0].iter().filter(|it| matches!(program.kernels[it.kernel], Kernel::Permute(_))).count();
            text.push_str(&format!(
                "| {} | {precision} | {} | {n_launches} | {:.2} | {:.2} | {:.2} | {n_permuted} |\n",
                network.name, before.0, before.1, bytes as f64 / 1e9, seconds * 1e3
            ));
            if network.name.starts_with("GPT") { text.push_str(&summary.to_string()); }
        }
    }
    println!("{text}");
}
