//! The evaluation of the SoyBean paper, simulated on its machine. All times are computed from the
//! programs that ranks would run and from data sheets; none is measured.
//!
//! `cargo run --release --example evaluation` prints tables beside the paper's statements, and
//! writes them with plots into `target/evaluation`. `-- --out DIR` writes into another folder, and
//! `-- --quick` simulates fewer cases. `-- --out docs` writes `docs/evaluation.md` anew.

mod bytes;
mod paper;
mod plots;
mod run;
mod scaling;
mod speed_up;
mod table;

use std::{
    env,
    error::Error,
    fs,
    io::{self, Write},
    path::PathBuf,
};

use lexopt::prelude::ValueExt;
use soybean_plan::Cluster;
use soybean_simulator::Transport;

use paper::Evaluation;
use run::{Amount, Machine};
use scaling::Scaling;

/// The preset of the paper's cluster.
const MACHINE: &str = "p2.8xlarge";

fn main() -> Result<(), Box<dyn Error>> {
    let (out, amount) = arguments()?;
    let cluster = soybean_cluster::preset(MACHINE).ok_or("the preset is not there")?;
    let machine = |transport| Machine { cluster: &cluster, transport };
    let evaluation = |transport| -> Result<Evaluation, Box<dyn Error>> {
        Ok(Evaluation {
            dense: scaling::dense(machine(transport), amount)?,
            networks: speed_up::networks(machine(transport), amount)?,
        })
    };
    let direct = evaluation(Transport::Direct)?;
    let rings = evaluation(Transport::Rings)?;
    let convolutional = scaling::convolutional(machine(Transport::Direct), amount)?;
    check_by_time(&direct, &convolutional)?;
    let text =
        [document(&cluster, [&direct, &rings], &convolutional), bytes::section()?].join("\n");
    write!(io::stdout(), "{text}")?;
    let plots = out.join("evaluation");
    fs::create_dir_all(&plots)?;
    fs::write(out.join("evaluation.md"), text)?;
    fs::write(plots.join("dense.svg"), plots::scaling(&direct.dense)?)?;
    fs::write(plots.join("convolutional.svg"), plots::scaling(&convolutional)?)?;
    fs::write(plots.join("speed-up.svg"), plots::speed_up(&direct.networks)?)?;
    Ok(())
}

/// Checks what the page says: no plan is faster than that by time, to a thousandth.
fn check_by_time(direct: &Evaluation, convolutional: &[Scaling]) -> Result<(), String> {
    let of_scaling = direct.dense.iter().chain(convolutional).map(Scaling::slowdown_by_time);
    let points = direct.networks.iter().flat_map(|it| &it.points);
    let most = of_scaling.chain(points.map(|it| it.slowdown_by_time())).fold(0.0, f64::max);
    match most < 1.001 {
        true => Ok(()),
        false => Err(format!("the plan by time takes {most} times as long as another one")),
    }
}

/// Reads the folder to write to, and the amount to simulate.
fn arguments() -> Result<(PathBuf, Amount), Box<dyn Error>> {
    let (mut out, mut amount) = (PathBuf::from("target/evaluation"), Amount::All);
    let mut parser = lexopt::Parser::from_args(env::args_os().skip(1));
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("out") => out = parser.value()?.parse()?,
            lexopt::Arg::Long("quick") => amount = Amount::Quick,
            other => return Err(other.unexpected().into()),
        }
    }
    Ok((out, amount))
}

fn document(cluster: &Cluster, evaluations: [&Evaluation; 2], convolutional: &[Scaling]) -> String {
    let [direct, _] = evaluations;
    let sections = [
        introduction(cluster),
        "## Dense layers\n\nFour layers of equal width with ReLU between them, no biases.\n".to_owned(),
        scaling::section(&direct.dense),
        "![Times of steps, simulated](evaluation/dense.svg)\n".to_owned(),
        "## Convolutions\n\nFive convolutions of 3 x 3 with ReLU at batch 256: wide ones on small images, and narrower ones on\nlarge images.\n".to_owned(),
        scaling::section(convolutional),
        "![Times of steps, simulated](evaluation/convolutional.svg)\n".to_owned(),
        speed_up::section(&direct.networks),
        "![Speed-up against batch size, simulated](evaluation/speed-up.svg)\n".to_owned(),
        paper::section(evaluations, cluster.device.efficiency),
    ];
    sections.join("\n")
}

fn introduction(cluster: &Cluster) -> String {
    let device = &cluster.device;
    let levels = cluster.levels.iter().enumerate().map(|(at, it)| {
        let (bandwidth, latency) = (it.link_bytes_per_second / 1e9, it.latency_seconds * 1e6);
        let shared = match it.gpus_per_link {
            1 => "one link for each GPU".to_owned(),
            n_gpus => format!("one link for {n_gpus} GPUs"),
        };
        format!(
            "- Level {}: {} {}, {shared}, {bandwidth} GB/s in each direction, latency {latency} µs.",
            at + 1,
            it.count,
            it.name
        )
    });
    format!(
        "# The paper's evaluation, simulated

**No time on this page is measured; all are simulated.** A discrete simulation
(`soybean-simulator`) runs the programs that the compiler emits, on a description of the paper's
machine, Amazon's `{name}`. `cargo run --release --example evaluation -- --out docs` writes the page
anew.

The machine (`soybean-cluster/presets/{name}.toml`) has:

- GPUs `{gpu}` of {flops} TFLOP/s and {memory} GB/s. Kernels attain {efficiency} % of both, and each takes
  {launch} µs to launch.
{levels}

Latencies, launches and that share are assumed.

The figures are of one training step with plain SGD in `f32`, under four plans:

- *data*: data parallelism,
- *model*: every layer split by its outputs,
- *soybean*: the plan with the fewest bytes (`auto`),
- *by time*: the plan with the least predicted time on this machine (`objective = \"time\"`).

*Overhead* is the time by which a step is longer than the kernels of a rank. Communication that runs
beside kernels does not count. Ranks read from each other's memory, unless the table says rings. The
documentation of `soybean-simulator` lists what the simulation leaves out.
",
        name = cluster.name,
        gpu = device.name,
        flops = device.f32_flops / 1e12,
        memory = device.memory_bytes_per_second / 1e9,
        efficiency = device.efficiency * 100.0,
        launch = device.launch_seconds * 1e6,
        levels = levels.collect::<Vec<_>>().join("\n"),
    )
}
