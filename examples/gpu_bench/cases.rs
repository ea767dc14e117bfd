//! All cases: a model in a size, in a precision, on a number of ranks.

use soybean::{
    Network,
    plan::{Plan, Precision},
    runtime::Model,
};

/// A model of the benchmark.
pub(crate) struct Case {
    pub(crate) model: &'static str,
    pub(crate) size: Size,
    pub(crate) feed: Feed,
    pub(crate) task: Task,
    pub(crate) plan: Plan,
    pub(crate) program: fn() -> &'static dyn Model,
}

/// The size of a model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// As in papers.
    Full,
    /// For testing the benchmark on a CPU.
    Small,
}

/// The source of the inputs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feed {
    /// They stay on the devices, except labels and tokens.
    Kept,
    /// The host sends them in every step.
    Fed,
}

/// The measured computation.
#[derive(Clone, Copy)]
pub(crate) enum Task {
    /// A training step.
    Train,
    /// An evaluation of 16 products of square matrices of this extent.
    Products(usize),
}

impl Feed {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Fed => "fed",
        }
    }
}

impl Case {
    pub(crate) fn precision(&self) -> Precision {
        (self.program)().tables().precision
    }

    /// Returns one line about the case.
    pub(crate) fn description(&self, flops: f64) -> String {
        let (model, precision, n_ranks) = (self.model, self.precision().name(), self.plan.n_gpus);
        let (feed, billions) = (self.feed.name(), flops / 1e9);
        format!(
            "{model:<8} {precision:<5} {n_ranks} ranks, inputs {feed:<4} {billions:>12.3} GFLOP"
        )
    }
}

fn case<N: Network>(model: &'static str, size: Size, feed: Feed, task: Task) -> Case {
    Case { model, size, feed, task, plan: N::PLAN, program: N::model }
}

/// Models in all precisions, each on the listed numbers of ranks.
macro_rules! models {
    ($($family:ident: $model:literal $size:ident $feed:ident $task:expr, $ranks:tt, $optimizer:ident $settings:tt, $inputs:tt $loss:tt;)*) => {
        $(mod $family {
            models!(@ranks $ranks $optimizer $settings $inputs $loss);
        })*

        /// Returns all cases.
        pub(crate) fn all() -> Vec<Case> {
            let groups = [$(models!(@cases $ranks $family ($model, Size::$size, Feed::$feed, $task))),*];
            groups.into_iter().flatten().collect()
        }
    };
    (@ranks [1] $($model:tt)*) => {
        models!(@model f32_on_1 1 "f32" $($model)*);
        models!(@model tf32_on_1 1 "tf32" $($model)*);
        models!(@model bf16_on_1 1 "bf16" $($model)*);
    };
    (@ranks [1, 8] $($model:tt)*) => {
        models!(@ranks [1] $($model)*);
        models!(@model f32_on_8 8 "f32" $($model)*);
        models!(@model tf32_on_8 8 "tf32" $($model)*);
        models!(@model bf16_on_8 8 "bf16" $($model)*);
    };
    (@model $name:ident $gpus:literal $precision:literal $optimizer:ident $settings:tt $inputs:tt $loss:tt) => {
        #[soybean::model(gpus = $gpus, precision = $precision, optimizer = $optimizer $settings)]
        pub(crate) mod $name {
            use soybean::prelude::*;

            use crate::losses;

            pub(crate) fn forward $inputs -> Tensor $loss
        }
    };
    (@cases [1] $family:ident $case:tt) => {
        vec![
            models!(@case $family f32_on_1 $case),
            models!(@case $family tf32_on_1 $case),
            models!(@case $family bf16_on_1 $case),
        ]
    };
    (@cases [1, 8] $family:ident $case:tt) => {
        vec![
            models!(@case $family f32_on_1 $case),
            models!(@case $family tf32_on_1 $case),
            models!(@case $family bf16_on_1 $case),
            models!(@case $family f32_on_8 $case),
            models!(@case $family tf32_on_8 $case),
            models!(@case $family bf16_on_8 $case),
        ]
    };
    (@case $family:ident $name:ident ($($field:expr),*)) => {
        case::<$family::$name::Network>($($field),*)
    };
}

models! {
    mlp512: "mlp512" Full Kept Task::Train, [1, 8], sgd(momentum = 0.9), (y: Tensor<i32, 512>) { losses::kept_perceptron(y, 8192) };
    mlp2048: "mlp2048" Full Kept Task::Train, [1, 8], sgd(momentum = 0.9), (y: Tensor<i32, 2048>) { losses::kept_perceptron(y, 8192) };
    alexnet: "alexnet" Full Kept Task::Train, [1, 8], sgd(momentum = 0.9), (y: Tensor<i32, 256>) { losses::kept_alexnet(y) };
    vgg16: "vgg16" Full Kept Task::Train, [1, 8], sgd(momentum = 0.9), (y: Tensor<i32, 256>) { losses::kept_vgg16(y) };
    gpt: "gpt" Full Fed Task::Train, [1, 8], adamw(), (x: Tensor<i32, 8, 1024>, y: Tensor<i32, 8, 1024>) { losses::of_gpt(x, y) };
    fed_mlp512: "mlp512" Full Fed Task::Train, [1], sgd(momentum = 0.9),
        (x: Tensor<f32, 512, 8192>, y: Tensor<i32, 512>) { losses::perceptron(x, y) };
    fed_mlp2048: "mlp2048" Full Fed Task::Train, [1], sgd(momentum = 0.9),
        (x: Tensor<f32, 2048, 8192>, y: Tensor<i32, 2048>) { losses::perceptron(x, y) };
    fed_alexnet: "alexnet" Full Fed Task::Train, [1], sgd(momentum = 0.9),
        (x: Tensor<f32, 256, 3, 224, 224>, y: Tensor<i32, 256>) { losses::of_alexnet(x, y) };
    fed_vgg16: "vgg16" Full Fed Task::Train, [1], sgd(momentum = 0.9),
        (x: Tensor<f32, 256, 3, 224, 224>, y: Tensor<i32, 256>) { losses::of_vgg16(x, y) };
    peak: "peak" Full Fed Task::Products(8192), [1], sgd(), (x: Tensor<f32, 1>) { losses::products(x, 8192) };
    // The work is so small that the step is all launch overhead.
    launch: "launch" Full Fed Task::Train, [1], sgd(), (x: Tensor<f32, 8, 64>, y: Tensor<i32, 8>) { losses::perceptron(x, y) };

    small_mlp: "mlp512" Small Kept Task::Train, [1, 8], sgd(momentum = 0.9), (y: Tensor<i32, 32>) { losses::kept_perceptron(y, 64) };
    small_fed_mlp: "mlp512" Small Fed Task::Train, [1], sgd(momentum = 0.9),
        (x: Tensor<f32, 32, 64>, y: Tensor<i32, 32>) { losses::perceptron(x, y) };
    small_alexnet: "alexnet" Small Kept Task::Train, [1, 8], sgd(momentum = 0.9), (y: Tensor<i32, 16>) { losses::small_alexnet(y) };
    small_vgg16: "vgg16" Small Kept Task::Train, [1, 8], sgd(momentum = 0.9), (y: Tensor<i32, 16>) { losses::small_vgg16(y) };
    small_gpt: "gpt" Small Fed Task::Train, [1, 8], adamw(), (x: Tensor<i32, 8, 32>, y: Tensor<i32, 8, 32>) { losses::small_gpt(x, y) };
    small_peak: "peak" Small Fed Task::Products(64), [1], sgd(), (x: Tensor<f32, 1>) { losses::products(x, 64) };
}
