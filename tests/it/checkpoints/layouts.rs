//! Filters in the order of tensor cores: `tf32` and `bf16` keep them with their channels last.
//! Neither users nor files see it.

use soybean::{
    Config, Network, Trainer,
    checkpoint::{Checkpoint, Checkpoints},
};
use soybean_plan::ImageLayout;

use super::{
    environment::{files, folder},
    network::progress,
};

macro_rules! images {
    ($($name:ident on $gpus:literal in $precision:literal $(with $setting:ident = $value:expr)?;)*) => {
        $(mod $name {
            #[soybean::model(
                gpus = $gpus, precision = $precision, optimizer = adamw(), ema = 0.5
                $(, $setting = $value)?
            )]
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

// Steps that share an update keep the sums of gradients, too.
images! {
    sums_first on 1 in "f32" with accumulate = 2;
    sums_last on 4 in "tf32" with accumulate = 2;
}

/// Saves the state of a trainer. Returns the checkpoint, and its files with their names.
fn save<N: Network>(trainer: &mut Trainer<N>, name: &str) -> (Checkpoint, Vec<(String, Vec<u8>)>) {
    let mut checkpoints = Checkpoints::new(folder(&format!("layouts_{name}")), 1);
    let path = trainer.save(&mut checkpoints, &progress(0)).unwrap();
    (Checkpoint::open(&path).unwrap(), files(&path))
}

/// Checks that both filters, their two moments and their averages have their channels last, and the
/// sums of their gradients if there are any.
fn check_layouts<N: Network>() {
    let tables = N::model().tables();
    let (parameters, states) = (tables.parameters.iter(), tables.states.iter());
    let layouts = parameters.map(|it| (it.tile, it.layout));
    let of_rank_4 = layouts.chain(states.map(|it| (it.tile, it.layout)));
    let of_rank_4: Vec<_> = of_rank_4.filter(|it| it.0.shape.len() == 4).collect();
    assert_eq!(of_rank_4.len(), if tables.accumulate > 1 { 10 } else { 8 });
    assert!(of_rank_4.iter().all(|it| it.1 == ImageLayout::ChannelsLast), "{of_rank_4:?}");
}

macro_rules! check {
    ($first:ident: $($name:ident)*) => {
        $({
            check_layouts::<$name::images::Network>();
            let new = $name::images::Trainer::new;
            let mut first = $first::images::Trainer::new(Config::default()).unwrap();
            let (mut last, what) = (new(Config::default()).unwrap(), stringify!($name));
            assert_eq!(last.parameters().unwrap(), first.parameters().unwrap(), "{what}");

            let x: Vec<f32> = (0_u8..216).cycle().take(4 * 3 * 36).map(f32::from).collect();
            last.step(&$name::images::Batch { x: &x, y: &[0, 1, 2, 3] }).unwrap();
            let (checkpoint, expected) = save(&mut last, what);
            first.restore(&checkpoint).unwrap();
            let states = last.optimizer_state().unwrap();
            assert_eq!(first.optimizer_state().unwrap(), states, "{what}");
            let mut other = new(Config::default()).unwrap();
            other.restore(&checkpoint).unwrap();
            let (_, found) = save(&mut other, &format!("{what}_again"));
            assert!(found == expected, "{what}: a second trainer saves other files");

            let (checkpoint, found) = save(&mut first, &format!("{what}_first"));
            // Other plans have other terms of the sums that wait for an update.
            let has_sums = last.counters().n_accumulated > 0;
            assert!(has_sums || found == expected, "{what}: channels first give other files");
            other.restore(&checkpoint).unwrap();
            assert_eq!(other.optimizer_state().unwrap(), states, "{what}");
        })*
    };
}

#[test]
#[expect(clippy::cognitive_complexity, reason = "the macro is a block for each model")]
fn states_move_between_layouts() {
    check!(channels_first: channels_last rounded on_four on_three);
}

#[test]
fn sums_of_gradients_move_between_layouts() {
    check!(sums_first: sums_last);
}

#[soybean::model(gpus = 2, precision = "tf32")]
mod with_filter {
    use soybean::prelude::*;

    pub(crate) fn forward(x: Tensor<f32, 2, 3, 6, 6>) -> (Tensor, Tensor) {
        let filter = param("filter", [4, 3, 3, 3], he_normal());
        (x.conv2d(filter, 1, 1, 1, 1).square().mean(..), filter)
    }
}

#[test]
fn an_output_may_be_a_filter() {
    let mut trainer = with_filter::Trainer::new(Config::default()).unwrap();
    let batch = with_filter::Batch { x: &[0.5; 2 * 3 * 36] };
    trainer.step(&batch).unwrap();
    let filter = trainer.parameters().unwrap().remove(0).1;
    assert_eq!(trainer.evaluate(&batch).unwrap().outputs, [filter]);
}
