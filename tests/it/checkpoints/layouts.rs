//! Filters in the order of tensor cores: `tf32` and `bf16` keep them with their channels last.
//! Neither users nor files see it.

use soybean::{
    Config, Network, Trainer,
    checkpoint::{Checkpoint, Checkpoints},
};

use super::{
    environment::{files, folder},
    network::progress,
};

macro_rules! images {
    ($($name:ident on $gpus:literal in $precision:literal;)*) => {
        $(mod $name {
            #[soybean::model(gpus = $gpus, precision = $precision, optimizer = adamw(), ema = 0.5)]
            pub(crate) mod images {
                use soybean::{nn, prelude::*};

                pub(crate) fn forward(x: Tensor<f32, 4, 3, 6, 6>, y: Tensor<i32, 4>) -> Tensor {
                    let window = nn::Window { kernel: 3, stride: 1, padding: 1 };
                    let h = nn::conv2d(nn::conv2d(x, 8, window).relu(), 16, window).relu();
                    nn::linear(h.flatten(), 4).cross_entropy(y)
                }
            }
        })*
    };
}

images! {
    channels_first on 1 in "f32";
    channels_last on 1 in "tf32";
    rounded on 1 in "bf16";
    on_four on 4 in "tf32";
    on_three on 3 in "bf16";
}

/// Saves the state of a trainer. Returns the checkpoint, and its files with their names.
fn save<N: Network>(trainer: &mut Trainer<N>, name: &str) -> (Checkpoint, Vec<(String, Vec<u8>)>) {
    let mut checkpoints = Checkpoints::new(folder(&format!("layouts_{name}")), 1);
    let path = trainer.save(&mut checkpoints, &progress(0)).unwrap();
    (Checkpoint::open(&path).unwrap(), files(&path))
}

macro_rules! check {
    ($($name:ident)*) => {
        $({
            let new = $name::images::Trainer::new;
            let mut first = channels_first::images::Trainer::new(Config::default()).unwrap();
            let (mut last, what) = (new(Config::default()).unwrap(), stringify!($name));
            assert_eq!(last.parameters().unwrap(), first.parameters().unwrap(), "{what}");

            let x: Vec<f32> = (0_u8..216).cycle().take(4 * 3 * 36).map(f32::from).collect();
            last.step(&$name::images::Batch { x: &x, y: &[0, 1, 2, 3] }).unwrap();
            let (checkpoint, expected) = save(&mut last, what);
            first.restore(&checkpoint).unwrap();
            let (checkpoint, found) = save(&mut first, &format!("{what}_first"));
            assert!(found == expected, "{what}: a trainer with channels first saves other files");

            let mut other = new(Config::default()).unwrap();
            other.restore(&checkpoint).unwrap();
            let (_, found) = save(&mut other, &format!("{what}_again"));
            assert!(found == expected, "{what}: a second trainer saves other files");
        })*
    };
}

#[test]
fn states_move_between_layouts() {
    check!(channels_last rounded on_four on_three);
}
