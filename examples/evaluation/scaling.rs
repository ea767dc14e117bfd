//! Networks of equal layers on increasing numbers of GPUs.

use std::error::Error;

use soybean_zoo::{Model, cnn5, mlp};

use crate::{
    run::{Amount, Figures, Machine, Plan, figures},
    table::table,
};

/// A network at one batch size.
#[derive(Clone, Debug)]
pub(crate) struct Scaling {
    pub(crate) name: String,
    pub(crate) batch: usize,
    /// One GPU.
    alone: Figures,
    /// The results of each plan, for each number of GPUs.
    pub(crate) figures: Vec<(usize, [Figures; 4])>,
}

impl Scaling {
    fn new(
        (name, batch, model): (String, usize, Model),
        machine: Machine<'_>,
        amount: Amount,
    ) -> Result<Self, Box<dyn Error>> {
        let numbers: &[usize] = match amount {
            Amount::All => &[2, 4, 8],
            Amount::Quick => &[8],
        };
        let of = |n_gpus, plan| figures(&model, machine, n_gpus, plan);
        let all = |&n_gpus: &usize| -> Result<_, Box<dyn Error>> {
            let [data, model, soybean, by_time] = Plan::ALL.map(|plan| of(n_gpus, plan));
            Ok((n_gpus, [data?, model?, soybean?, by_time?]))
        };
        let (alone, figures) =
            (of(1, Plan::Soybean)?, numbers.iter().map(all).collect::<Result<_, _>>()?);
        Ok(Self { name, batch, alone, figures })
    }
}

impl Scaling {
    /// Returns the largest ratio between the time of the plan by time and that of another plan.
    pub(crate) fn slowdown_by_time(&self) -> f64 {
        let of_row = |(_, [data, model, soybean, by_time]): &(usize, [Figures; 4])| {
            let others = [data, model, soybean].map(|it| it.seconds);
            by_time.seconds / others.into_iter().fold(f64::INFINITY, f64::min)
        };
        self.figures.iter().map(of_row).fold(0.0, f64::max)
    }
}

/// Four dense layers of the paper's widths and batches.
pub(crate) fn dense(machine: Machine<'_>, amount: Amount) -> Result<Vec<Scaling>, Box<dyn Error>> {
    let widths: &[(&str, usize)] = match amount {
        Amount::All => &[("8K", 8192), ("12K", 12_288)],
        Amount::Quick => &[("8K", 8192)],
    };
    let cases = widths.iter().flat_map(|&(name, width)| {
        [512, 2048].map(|batch| (format!("4 x {name}"), batch, mlp(batch, &[width; 5])))
    });
    cases.map(|it| Scaling::new(it, machine, amount)).collect()
}

/// Both networks of five convolutions.
pub(crate) fn convolutional(
    machine: Machine<'_>,
    amount: Amount,
) -> Result<Vec<Scaling>, Box<dyn Error>> {
    let case = |channels, side| {
        (format!("{channels} channels, {side} x {side}"), 256, cnn5(256, channels, side))
    };
    let cases = [case(2048, 6), case(512, 24)];
    cases.into_iter().map(|it| Scaling::new(it, machine, amount)).collect()
}

/// Simulates all networks.
pub(crate) fn section(networks: &[Scaling]) -> String {
    let head = [
        "network",
        "batch",
        "GPUs",
        "one GPU, ms",
        "data, ms (overhead / kernels)",
        "model",
        "soybean",
        "by time",
        "data / soybean",
        "soybean's speed-up",
    ];
    let cell = |it: &Figures| format!("{:.1} ({:.2})", it.seconds * 1e3, it.overhead());
    let row = |network: &Scaling, (n_gpus, figures): &(usize, [Figures; 4])| {
        let [data, _, soybean, _] = figures;
        let alone = network.alone.seconds;
        let mut row = vec![network.name.clone(), network.batch.to_string(), n_gpus.to_string()];
        row.push(format!("{:.1}", alone * 1e3));
        row.extend(figures.iter().map(cell));
        row.push(format!("{:.2}", data.seconds / soybean.seconds));
        row.push(format!("{:.2}", alone / soybean.seconds));
        row
    };
    let rows = networks.iter().flat_map(|it| it.figures.iter().map(move |of| row(it, of)));
    table(&head, rows)
}
