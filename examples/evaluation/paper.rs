//! The statements of the paper beside the results of the simulation.

use crate::{
    scaling::Scaling,
    speed_up::{Point, SpeedUp},
    table::table,
};

/// The speed-up of AlexNet that the paper states.
const SPEED_UP: f64 = 7.0;

/// The results of the simulation with one transport.
pub(crate) struct Evaluation {
    pub(crate) dense: Vec<Scaling>,
    pub(crate) networks: Vec<SpeedUp>,
}

/// Writes the statements beside the results with direct reads and with rings, and why they differ.
pub(crate) fn section(evaluations: [&Evaluation; 2], efficiency: f64) -> String {
    let mut rows = Vec::new();
    let mut state = |what: String, stated: &str, found: &dyn Fn(&Evaluation) -> String| {
        rows.push([vec![what, stated.to_owned()], evaluations.map(found).to_vec()].concat());
    };
    for (batch, stated) in [(512, "about 5"), (2048, "about 2.5")] {
        let what = format!(
            "dense layers, batch {batch}, 8 GPUs: data parallelism's communication, in times of compute"
        );
        state(what, stated, &|it| overheads(&it.dense, batch));
    }
    for (at, name) in ["AlexNet", "VGG-16"].into_iter().enumerate() {
        let what = format!("{name}, 8 GPUs: soybean against data parallelism");
        state(what, "1.5 to 4 times as fast", &|it| gains(&it.networks[at]));
    }
    let of_256 = |it: &Evaluation| {
        let point = it.networks[0].points.iter().find(|it| it.batch == 256);
        point.map_or_else(|| "not simulated".to_owned(), |it| format!("{:.2}", it.soybean()))
    };
    state("AlexNet, batch 256, 8 GPUs: soybean's speed-up".to_owned(), "over 7", &of_256);
    let what = "AlexNet, 8 GPUs: the batch at which data parallelism is as fast";
    state(what.to_owned(), "over 1K", &|it| reached(&it.networks[0].points));
    let head = ["", "paper", "simulated", "simulated, by rings"];
    let [direct, _] = evaluations;
    let shares = [(512, 5.0), (2048, 2.5)]
        .map(|(batch, stated)| share(&direct.dense, batch, stated, efficiency));
    format!("## Beside the paper\n\n{}\n{}", table(&head, rows), differences(&shares))
}

/// Lists the overheads of data parallelism on the most GPUs.
fn overheads(dense: &[Scaling], batch: usize) -> String {
    let of_batch = dense.iter().filter(|it| it.batch == batch);
    let overhead = |it: &Scaling| {
        it.figures.last().map(|(_, [data, ..])| format!("{:.1} ({})", data.overhead(), it.name))
    };
    of_batch.filter_map(overhead).collect::<Vec<_>>().join(", ")
}

fn gains(network: &SpeedUp) -> String {
    let gain = |it: &Point| format!("{:.2} (batch {})", it.gain(), it.batch);
    network.points.iter().map(gain).collect::<Vec<_>>().join(", ")
}

/// Returns the simulated batches between which data parallelism reaches the speed-up.
fn reached(points: &[Point]) -> String {
    let at = points.iter().position(|it| it.data() > SPEED_UP);
    match at {
        Some(0) => format!("at most {}", points[0].batch),
        Some(at) => format!("above {}, at most {}", points[at - 1].batch, points[at].batch),
        None => format!("above {}", points[points.len() - 1].batch),
    }
}

/// Returns the share of their peak, in percent, at which kernels would cause the stated overhead,
/// with all else as simulated, for the first network of this batch.
fn share(dense: &[Scaling], batch: usize, stated: f64, efficiency: f64) -> String {
    let network = dense.iter().find(|it| it.batch == batch);
    let found = network.and_then(|it| it.figures.last()).map(|(_, [data, ..])| data.overhead());
    found.map_or_else(String::new, |it| format!("{:.0} %", 100.0 * efficiency * stated / it))
}

fn differences([short, long]: &[String; 2]) -> String {
    format!(
        "The paper and the simulation differ in some rows. No constant was fitted to the paper: the machine
follows from data sheets, the paper, and the assumptions above.

- **Overhead.** From batch 512 to 2048 the work grows four times, and the simulated overhead falls to
  a quarter. The paper's falls to half, so neither transport matches both of its figures: direct
  reads come close at batch 2048, rings at batch 512. A likely reason is the speed of kernels. The
  simulation gives all kernels the same share of the peak, whatever their shape. At batch 512 each of
  eight GPUs has 64 rows, and products that narrow are slower. With direct reads, the paper's figures
  would mean kernels at {short} of their peak at batch 512 and at {long} at batch 2048. Kernels that are
  simulated too fast make data parallelism look worse than it was, and soybean better beside it.
- **How gradients travel.** *Simulated* is this project's exchange without NCCL: each rank reads its
  part of the gradients from all others. The link between the groups then carries four times the size
  of the gradients in each direction. *By rings* is the exchange with NCCL, which carries 1.75 times.
  The method of the paper's baseline is not known here, and matters as much as the machine does.
- **Soybean against data parallelism.** The gain depends on the batch. It is largest for small
  batches, and above some batch there is none. The paper gives one range for all.
- **Fewest bytes is not least time.** Data parallelism can move its bytes during the backward pass.
  Conversions between layers have nothing to run beside. For large batches, data parallelism is as
  fast as the plan with the fewest bytes, or a little faster. *By time* compares plans with
  collectives beside kernels. No other plan of these rows is faster.
- **Not simulated**: the transfer of the batch to the GPUs, the host, and kernels that are slower
  while data moves.
"
    )
}
