//! `bench` of models whose steps share updates.

use std::sync::Arc;

use soybean_runtime::data::{Column, Dataset, Table, Values};

use super::bench;
use crate::{
    Device, Network, TrainConfig,
    command_line::{CommandModel, flags::Options},
};

#[soybean::model(gpus = 2, strategy = "data", accumulate = 4)]
mod accumulated {
    use soybean::prelude::*;

    pub(crate) fn forward(x: Tensor<f32, 8, 6>, y: Tensor<i32, 8>) -> Tensor {
        x.matmul(param("w", [6, 4], he_normal())).cross_entropy(y)
    }
}

/// Returns what `bench` prints for this number of steps.
fn output(n_steps: u64) -> String {
    type N = accumulated::Network;
    let column =
        |name: &str, row: Vec<usize>, values| Column { name: name.to_owned(), row, values };
    let x = (0..96_u8).map(|it| f32::from(it % 7) - 3.0).collect();
    let y = (0..16).map(|it| it % 4).collect();
    let table =
        Table::new(vec![column("x", vec![6], Values::F32(x)), column("y", vec![], Values::I32(y))]);
    let data: Arc<dyn Dataset> = Arc::new(table.unwrap());
    let model = CommandModel::of::<N>();
    let mut options = Options::new(TrainConfig::default());
    options.n_measured = Some(n_steps);
    options.run.trainer.device = Device::Cpu;
    let mut output = Vec::new();
    bench(&model, &options, &data, &mut output).unwrap_or_else(|_| unreachable!("it has data"));
    String::from_utf8(output).unwrap()
}

#[test]
fn whole_updates_are_measured() {
    let tables = accumulated::Network::model().tables();
    let (accumulating, updating) = (tables.accumulate_bytes, tables.train_bytes());
    assert!(accumulating < updating);
    let of_update = 3 * accumulating + updating;
    for (n_steps, of_steps, n_updates) in [
        (5, "of 8 steps, which are whole updates, instead of 5", 2),
        (1, "of 4 steps, which are whole updates, instead of 1", 1),
        (12, "of 12 steps", 3),
    ] {
        let output = output(n_steps);
        let lines: Vec<&str> = output.lines().collect();
        let has = |start: &str, end: &str| {
            lines.iter().any(|it| it.starts_with(start) && it.ends_with(end))
        };
        assert!(has("step  ", of_steps), "{output}");
        assert!(has("update  ", &format!("of {n_updates} updates")), "{output}");
        for (bytes, kind) in [(accumulating, "accumulating"), (updating, "updating")] {
            let line = format!("{bytes} predicted, {bytes} counted, while {kind}");
            assert!(has("bytes per step", &line), "{output}");
            assert!(has("time  ", &format!("%, while {kind}")), "{output}");
        }
        let line = format!("{of_update} predicted, {of_update} counted, in 4 steps");
        assert!(has("bytes per update", &line), "{output}");
    }
}
