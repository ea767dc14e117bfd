//! AlexNet and VGG-16 on eight GPUs as functions of the batch size.

use std::error::Error;

use soybean_zoo::{Model, alexnet, vgg16};

use crate::{
    run::{Amount, Figures, Machine, Plan, figures},
    table::table,
};

/// The GPUs of the cluster.
const N_GPUS: usize = 8;

/// A network at several batch sizes.
#[derive(Clone, Debug)]
pub(crate) struct SpeedUp {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<Point>,
    /// The memory of a GPU.
    memory_bytes: u64,
}

/// A network at one batch size: one GPU, and eight GPUs under several plans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) batch: usize,
    alone: Figures,
    data: Figures,
    soybean: Figures,
    by_time: Figures,
}

impl Point {
    /// Returns the speed-up of data parallelism.
    pub(crate) fn data(&self) -> f64 {
        self.alone.seconds / self.data.seconds
    }

    /// Returns the speed-up of the plan with the fewest bytes.
    pub(crate) fn soybean(&self) -> f64 {
        self.alone.seconds / self.soybean.seconds
    }

    /// Returns the ratio between the time of the plan by time and that of the faster other plan.
    pub(crate) fn slowdown_by_time(&self) -> f64 {
        self.by_time.seconds / self.data.seconds.min(self.soybean.seconds)
    }

    /// Returns the speed of the plan with the fewest bytes relative to data parallelism.
    pub(crate) fn gain(&self) -> f64 {
        self.data.seconds / self.soybean.seconds
    }
}

/// Both networks.
pub(crate) fn networks(
    machine: Machine<'_>,
    amount: Amount,
) -> Result<Vec<SpeedUp>, Box<dyn Error>> {
    let (of_alexnet, of_vgg): (&[usize], &[usize]) = match amount {
        Amount::All => (&[64, 128, 256, 512, 1024, 2048], &[32, 64, 128, 256, 512]),
        Amount::Quick => (&[256, 1024], &[64]),
    };
    let of = |name, network: fn(usize) -> Model, batches: &[usize]| -> Result<_, Box<dyn Error>> {
        let point = |&batch: &usize| -> Result<_, Box<dyn Error>> {
            let model = network(batch);
            let of = |n_gpus, plan| figures(&model, machine, n_gpus, plan);
            let (alone, data) = (of(1, Plan::Soybean)?, of(N_GPUS, Plan::Data)?);
            let (soybean, by_time) = (of(N_GPUS, Plan::Soybean)?, of(N_GPUS, Plan::ByTime)?);
            Ok(Point { batch, alone, data, soybean, by_time })
        };
        let points = batches.iter().map(point).collect::<Result<_, _>>()?;
        Ok(SpeedUp { name, points, memory_bytes: machine.cluster.device.memory_bytes })
    };
    Ok(vec![of("AlexNet", alexnet, of_alexnet)?, of("VGG-16", vgg16, of_vgg)?])
}

/// Simulates both networks.
pub(crate) fn section(networks: &[SpeedUp]) -> String {
    let head = [
        "network",
        "batch",
        "one GPU, ms",
        "data, ms",
        "soybean, ms",
        "by time, ms",
        "data's speed-up",
        "soybean's speed-up",
        "data / soybean",
    ];
    let row = |network: &SpeedUp, point: &Point| {
        let milliseconds = |it: &Figures| format!("{:.1}", it.seconds * 1e3);
        let too_much = match point.alone.memory_bytes > network.memory_bytes {
            true => " *",
            false => "",
        };
        let mut row = vec![network.name.to_owned(), point.batch.to_string()];
        row.push(milliseconds(&point.alone) + too_much);
        row.extend([&point.data, &point.soybean, &point.by_time].map(milliseconds));
        row.extend(
            [point.data(), point.soybean(), point.gain()].map(|speed_up| format!("{speed_up:.2}")),
        );
        row
    };
    let rows = networks.iter().flat_map(|it| it.points.iter().map(move |point| row(it, point)));
    format!(
        "## AlexNet and VGG-16 on {N_GPUS} GPUs\n\nSpeed-up is against one GPU at the same batch size. If that batch does not fit into the memory of\none GPU (*), the simulation ignores the limit.\n\n{}",
        table(&head, rows)
    )
}
