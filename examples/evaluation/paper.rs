//! What the paper states, and what the simulation says to it.

use crate::{
    scaling::Scaling,
    speed_up::{Point, SpeedUp},
    table::table,
};

/// The speed-up of AlexNet that the paper speaks of.
const SPEED_UP: f64 = 7.0;

/// The statements side by side, and why they differ where they do.
pub(crate) fn section(dense: &[Scaling], networks: &[SpeedUp], efficiency: f64) -> String {
    let mut rows = Vec::new();
    for (batch, stated) in [(512, "about 5"), (2048, "about 2.5")] {
        let what = format!(
            "dense layers, batch {batch}, 8 GPUs: data parallelism's communication, in times of compute"
        );
        rows.push(vec![what, stated.to_owned(), overheads(dense, batch)]);
    }
    for network in networks {
        let what = format!("{}, 8 GPUs: soybean against data parallelism", network.name);
        rows.push(vec![what, "1.5 to 4 times as fast".to_owned(), gains(network)]);
    }
    let alexnet = networks.iter().find(|it| it.name == "AlexNet");
    if let Some(points) = alexnet.map(|it| &it.points[..]) {
        let at = points.iter().find(|it| it.batch == 256);
        let found =
            at.map_or_else(|| "not simulated".to_owned(), |it| format!("{:.2}", it.soybean()));
        let what = "AlexNet, batch 256, 8 GPUs: soybean's speed-up".to_owned();
        rows.push(vec![what, "over 7".to_owned(), found]);
        let what = "AlexNet, 8 GPUs: the batch at which data parallelism is as fast".to_owned();
        rows.push(vec![what, "over 1K".to_owned(), reached(points)]);
    }
    let head = ["", "paper", "simulated"];
    let shares =
        [(512, 5.0), (2048, 2.5)].map(|(batch, stated)| share(dense, batch, stated, efficiency));
    format!("## Beside the paper\n\n{}\n{}", table(&head, rows), differences(&shares))
}

/// The overheads of data parallelism on the most GPUs.
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

/// Between which of the simulated batches data parallelism reaches the speed-up.
fn reached(points: &[Point]) -> String {
    let at = points.iter().position(|it| it.data() > SPEED_UP);
    match at {
        Some(0) => format!("at most {}", points[0].batch),
        Some(at) => format!("above {}, at most {}", points[at - 1].batch, points[at].batch),
        None => format!("above {}", points[points.len() - 1].batch),
    }
}

/// The share of their peak, in percent, at which kernels would have to run for the stated overhead, all else as simulated; for the first network of this batch.
fn share(dense: &[Scaling], batch: usize, stated: f64, efficiency: f64) -> String {
    let network = dense.iter().find(|it| it.batch == batch);
    let found = network.and_then(|it| it.figures.last()).map(|(_, [data, ..])| data.overhead());
    found.map_or_else(String::new, |it| format!("{:.0} %", 100.0 * efficiency * stated / it))
}

fn differences([short, long]: &[String; 2]) -> String {
    format!(
        "Where they differ, and why. No constant was fitted to the paper: the machine is what data sheets and the paper say of it, and what is assumed above.

- **Overhead at batch 512.** With the communication that is simulated, the paper's figures would mean kernels at {short} of their peak at batch 512 and at {long} at batch 2048. The simulation gives all kernels
  the same share, whatever their shape; at batch 512 each of eight GPUs has 64 rows, and products that narrow reach less of a GPU's peak. The paper's own figures fit with that: four times the work
  makes its overhead half as large, not a quarter. So the simulation computes too fast where batches are small, and data parallelism looks worse, and soybean better beside it, than they were.
- **How gradients travel.** What is simulated is this project's exchange: each rank reads its share of the gradients from all others, so that the link between the groups carries four times the size of the
  gradients in each direction. Rings, or a sum on the way, would need less of it. How the paper's baseline did it decides its overhead as much as the machine does.
- **Soybean against data parallelism.** The gain depends on the batch: it is largest where batches are small, and above some batch there is none. The paper gives one range for all.
- **Fewest bytes is not least time.** Data parallelism can hide its bytes behind the backward pass; conversions between layers have nothing to hide behind. Where batches are large, data parallelism is
  as fast as the plan with the fewest bytes, or a little faster.
- **Not simulated**: the batch's way to the GPUs, the host, and slower kernels while data pass.
"
    )
}
