//! Ten kinds of clothes with a convolutional network on eight devices: `cargo run --release
//! --example fashion_mnist`.
//!
//! It needs the four files of Fashion-MNIST (Xiao, Rasul & Vollgraf 2017): 60,000 training images
//! of 28 x 28 pixels and 10,000 held-out ones. Debian's package `dataset-fashion-mnist` has them;
//! `--data-dir DIR` names another folder. `-- train --augment` moves training images by at most two
//! pixels, and mirrors half of them. `-- plan` shows the plan, `-- --help` lists the flags.

use std::{path::PathBuf, process::ExitCode};

use soybean::{
    DataOptions, Split, TrainConfig,
    data::{Augmentation, Dataset, IdxSpec, Table},
};

/// Three convolutions with batch norm, two dense layers.
#[soybean::model(gpus = 8, optimizer = adam())]
pub mod fashion_mnist {
    use soybean::{nn, prelude::*};

    const BATCH: usize = 64;
    const SIDE: usize = 28;

    /// Returns the cross-entropy and the logits.
    pub fn forward(x: Tensor<f32, BATCH, SIDE, SIDE>, y: Tensor<i32, BATCH>) -> (Tensor, Tensor) {
        let mut h = x.reshape([BATCH, 1, SIDE, SIDE]);
        for channels in [16, 32] {
            h = nn::conv_norm_relu(h, channels, nn::Window { kernel: 3, stride: 1, padding: 1 })
                .max_pool2d(2, 2, 0);
        }
        h = nn::conv_norm_relu(h, 64, nn::Window { kernel: 3, stride: 1, padding: 1 });
        h = nn::linear(h.flatten(), 128).relu().dropout(0.25);
        let logits = nn::linear(h, 10);
        (logits.cross_entropy(y), logits)
    }
}

/// The folder of Debian's package.
const FOLDER: &str = "/usr/share/datasets/fashion-mnist";

fn load(options: &DataOptions) -> Result<Split, String> {
    let folder = options.path.clone().unwrap_or_else(|| PathBuf::from(FOLDER));
    let spec = IdxSpec { scale: 1.0 / 255.0, n_classes: 10 };
    let part = |name: &str| {
        let file = |kind: &str| {
            let plain = folder.join(format!("{name}-{kind}-ubyte"));
            if plain.exists() { plain } else { plain.with_extension("gz") }
        };
        Table::from_idx(file("images-idx3"), file("labels-idx1"), &spec).map_err(|error| {
            format!(
                "{error}\nhelp: install Debian's package dataset-fashion-mnist, or name the folder of the four IDX files with --data-dir"
            )
        })
    };
    let (train, held_out) = (part("train")?, part("t10k")?);
    if !options.augment {
        return Ok(Split::new(train, held_out));
    }
    let changes = vec![
        Augmentation::Crop { padding: 2, fill: 0.0 },
        Augmentation::HorizontalFlip { probability: 0.5 },
    ];
    let train = train.augment(0, changes).map_err(|error| error.to_string())?;
    Ok(Split::new(train, held_out))
}

fn main() -> ExitCode {
    fashion_mnist::Trainer::command_line_with(TrainConfig::new(1, 0.001), load)
}
