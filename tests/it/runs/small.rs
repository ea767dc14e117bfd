//! A small model with all kinds of state: means of gradients, and noise.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use soybean::{Split, TrainConfig};

#[soybean::model(gpus = 4, optimizer = adam())]
pub(crate) mod mlp {
    use soybean::{nn, prelude::*};

    pub(crate) const BATCH: usize = 8;

    pub(crate) fn forward(x: Tensor<f32, BATCH, 16>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let h = nn::linear(x, 12).relu().dropout(0.2);
        let logits = nn::linear(h, 5);
        (logits.cross_entropy(y), logits)
    }
}

/// Returns eight full batches for each epoch, and two batches and five samples of held-out data.
pub(crate) fn data() -> Split {
    Split::random::<mlp::Network>(70, 21, 0)
}

/// Returns a trainer with this configuration.
pub(crate) fn trainer(config: &TrainConfig) -> mlp::Trainer {
    mlp::Trainer::new(config.trainer.clone()).unwrap()
}

/// Returns a run of 5 epochs with 8 steps each, which writes into a folder.
pub(crate) fn config(out: &Path) -> TrainConfig {
    TrainConfig { out: Some(out.into()), log_every: 1, ..TrainConfig::new(5, 0.02) }
}

/// Returns an empty folder for a test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runs").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns the bytes of all tensors of a checkpoint.
pub(crate) fn state(checkpoint: &Path) -> [Vec<u8>; 2] {
    ["model.safetensors", "optimizer.safetensors"]
        .map(|name| fs::read(checkpoint.join(name)).unwrap())
}

/// Returns the names of the checkpoints in a folder, in order.
pub(crate) fn checkpoints(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|it| it.starts_with("step-"));
    names.sort();
    names
}

/// Returns the newest checkpoint of a run.
pub(crate) fn newest(out: &Path) -> PathBuf {
    let folder = out.join("checkpoints");
    let name = checkpoints(&folder).pop().expect("the run has written a checkpoint");
    folder.join(name)
}

/// Returns the lines of `metrics.jsonl` without the values that depend on the clock.
pub(crate) fn lines(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let map = value.as_object_mut().unwrap();
        for key in ["time", "seconds", "samples_per_second", "data_wait"] {
            map.remove(key);
        }
        value
    };
    text.lines().map(line).collect()
}

/// Random numbers, the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // Knuth's generator, whose high bits are good.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
