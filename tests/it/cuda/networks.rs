//! Tests of networks with all kinds of layers, precisions, optimizers and meshes: on GPUs they
//! train as on the CPU, and move the predicted bytes.

use std::sync::Arc;

use soybean::{
    Config, Counters, Device, Evaluation, Network,
    plan::{DType, Executable, Kernel, NonFinite, Precision, Tables},
    runtime::{Array, Trainer, View},
};
use soybean_compiler::{Argument, Optimizer, Options, Strategy, optimizer};

use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus};
use soybean_test_support::models::{finish_with, perceptron_model, sgd};

/// One step kernel by kernel, then the graphs of both slots, the first of them twice.
const N_STEPS: usize = 4;

/// A model that is created in one of two ways.
pub(crate) enum Model {
    Generated(&'static dyn soybean::runtime::Model),
    Program(Arc<Executable>),
}

impl Model {
    pub(crate) fn of<N: Network>() -> Self {
        Self::Generated(N::model())
    }

    /// The perceptron of the tests on this many ranks.
    pub(crate) fn perceptron(n_gpus: usize, precision: Precision, optimizer: Optimizer) -> Self {
        let (builder, loss, outputs) = perceptron_model();
        let (name, strategy) = ("model".to_owned(), Strategy::Auto);
        let options = Options { name, n_gpus, search: strategy.into(), precision, optimizer };
        Self::Program(Arc::new(finish_with(builder, loss, &outputs, &options).program))
    }

    pub(crate) fn tables(&self) -> &Tables {
        match self {
            Self::Generated(model) => model.tables(),
            Self::Program(program) => &program.tables,
        }
    }

    pub(crate) fn trainer(&self, device: Device) -> Trainer {
        let config = Config { device, learning_rate: 0.01, ..Config::default() };
        match self {
            Self::Generated(model) => Trainer::new(*model, config),
            Self::Program(program) => {
                Trainer::new_shared(Arc::<Executable>::clone(program), config)
            }
        }
        .unwrap()
    }
}

/// A batch of pseudo-random numbers for any model.
pub(crate) struct Columns(Vec<Column>);

enum Column {
    Numbers(Vec<f32>),
    Labels(Vec<i32>),
}

impl Columns {
    pub(crate) fn new(tables: &Tables, step: usize) -> Self {
        let columns = tables.inputs.iter().enumerate().map(|(place, input)| {
            let n = input.tile.shape.n_elements();
            let noise = (0..n).map(|it| ((it + 1) * 7919 + (step + 5 * place) * 104_729) % 2003);
            if input.dtype == DType::I32 {
                let n_classes = input.n_classes.expect("integers here are labels");
                Column::Labels(noise.map(|it| i32::try_from(it % n_classes).unwrap()).collect())
            } else {
                Column::Numbers(noise.map(|it| it as f32 / 1001.0 - 1.0).collect())
            }
        });
        Self(columns.collect())
    }

    pub(crate) fn views(&self) -> Vec<View<'_>> {
        self.0.iter().map(Column::view).collect()
    }
}

impl Column {
    fn break_first(&mut self) {
        if let Self::Numbers(numbers) = self {
            numbers[0] = f32::NAN;
        }
    }

    fn view(&self) -> View<'_> {
        match self {
            Self::Numbers(numbers) => View::F32(numbers),
            Self::Labels(labels) => View::I32(labels),
        }
    }
}

/// Result of training on a device.
struct Outcome {
    losses: Vec<f32>,
    evaluation: Evaluation,
    parameters: Vec<(String, Array)>,
    /// Averaged parameters, if the model has them.
    averages: Vec<(String, Array)>,
    norms: Vec<f32>,
    counters: Counters,
}

impl Outcome {
    /// Runs some steps, with an evaluation while a batch is queued.
    fn new(model: &Model, device: Device) -> Self {
        let (mut trainer, tables) = (model.trainer(device), model.tables());
        let (mut losses, mut norms) = (Vec::new(), Vec::new());
        let mut evaluation = None;
        trainer.queue(&Columns::new(tables, 0).views()).unwrap();
        for step in 1..=N_STEPS {
            let next = Columns::new(tables, step);
            let predicted = trainer.bytes_of_next_step();
            losses.push(trainer.step_queued(Some(&next.views())).unwrap());
            norms.extend(trainer.gradient_norm());
            assert_eq!(trainer.moved_bytes(), predicted, "{}", tables.name);
            assert_eq!(trainer.fed_bytes(), tables.fed_bytes(0), "{}", tables.name);
            if step % 2 == 0 {
                evaluation = Some(trainer.evaluate(&Columns::new(tables, 100).views()).unwrap());
                assert_eq!(trainer.moved_bytes(), tables.entries[0].bytes, "{}", tables.name);
                assert_eq!(trainer.fed_bytes(), tables.fed_bytes(0), "{}", tables.name);
            }
        }
        let evaluation = evaluation.expect("there are two steps at least");
        let counters = trainer.counters();
        skip(&mut trainer, tables);
        Self {
            losses,
            evaluation,
            parameters: trainer.parameters().unwrap(),
            averages: tables.ema.map_or_else(Vec::new, |_| trainer.averaged_parameters().unwrap()),
            norms,
            counters,
        }
    }

    fn assert_near(&self, expected: &Self, tolerance: f32, what: &str) {
        assert_near(&self.losses, &expected.losses, tolerance, &format!("{what}: losses"));
        let (found, expected_loss) = (self.evaluation.loss, expected.evaluation.loss);
        assert_near(&[found], &[expected_loss], tolerance, &format!("{what}: evaluation"));
        for (found, expected) in self.evaluation.outputs.iter().zip(&expected.evaluation.outputs) {
            assert_eq!(found.shape, expected.shape, "{what}");
            assert_near(&found.data, &expected.data, tolerance, &format!("{what}: output"));
        }
        assert_eq!(self.counters, expected.counters, "{what}");
        assert_near(&self.norms, &expected.norms, tolerance, &format!("{what}: norms"));
        let averages = self.averages.iter().zip(&expected.averages);
        let tensors = self.parameters.iter().zip(&expected.parameters);
        for ((name, found), (_, expected)) in tensors.chain(averages) {
            assert_near(&found.data, &expected.data, tolerance, &format!("{what}: {name}"));
        }
    }
}

/// Checks that an update on a batch with a NaN changes nothing in models that skip such steps, but
/// may drop the gradients of the steps before it.
fn skip(trainer: &mut Trainer, tables: &Tables) {
    if !tables.non_finite.skips() {
        return;
    }
    while trainer.counters().n_accumulated + 1 < tables.accumulate {
        trainer.step(&Columns::new(tables, 49).views()).unwrap();
    }
    let state = |trainer: &mut Trainer| {
        let tensors = trainer.parameters().unwrap().into_iter();
        let tensors = tensors.chain(trainer.optimizer_state().unwrap());
        let tensors = tensors.filter(|it| !it.0.ends_with(".gradient_sum"));
        tensors.map(|(_, it)| it.data.into_iter().map(f32::to_bits).collect()).collect()
    };
    let before: Vec<Vec<u32>> = state(trainer);
    let mut broken = Columns::new(tables, 50);
    broken.0.iter_mut().for_each(Column::break_first);
    // An epilogue may turn NaN into 0, so that only the gradients are not finite.
    let loss = trainer.step(&broken.views()).unwrap();
    assert!(trainer.was_skipped(), "{}: loss {loss}", tables.name);
    assert_eq!(trainer.moved_bytes(), tables.train_bytes(), "{}", tables.name);
    assert_eq!(state(trainer), before, "{}", tables.name);
}

/// Compares all values, with a tolerance relative to the largest.
pub(crate) fn assert_near(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0_f32, |scale, it| scale.max(it.abs()));
    // Formulated so that NaN is never near.
    let is_near = |(found, expected): (&f32, &f32)| (found - expected).abs() <= tolerance * scale;
    let far = found.iter().zip(expected).position(|it| !is_near(it));
    if let Some(far) = far {
        let (found, expected) = (found[far], expected[far]);
        unreachable!("{what}, element {far}: expected {expected}, found {found}, largest {scale}");
    }
}

/// Returns the tolerance after some steps. In `f32` sums are reordered. In `bf16` each number is
/// off by up to 2^-9. In `tf32` the CPU computes in `f32`, while a GPU rounds operands by up to
/// 2^-11. Biases are sums of gradients that cancel, which amplifies the difference.
fn tolerance(precision: Precision) -> f32 {
    match precision {
        Precision::F32 => 1e-4,
        Precision::Tf32 => 1e-2,
        Precision::Bf16 => 2e-2,
    }
}

pub(crate) fn learns_as_on_the_cpu(machine: &Machine, model: &Model) {
    let tolerance = tolerance(model.tables().precision);
    let expected = Outcome::new(model, Device::Cpu);
    for seed in 0..3 {
        machine.reset(seed);
        let what = format!("{}, seed {seed}", model.tables().name);
        Outcome::new(model, Device::Cuda).assert_near(&expected, tolerance, &what);
        assert_eq!(machine.n_complaints(), 0, "{what}");
    }
}

macro_rules! texts {
    ($($name:ident on $gpus:literal in $precision:literal;)*) => {
        $(#[soybean::model(gpus = $gpus, precision = $precision, optimizer = sgd(momentum = 0.9), clip_norm = 1.0)]
        pub(crate) mod $name {
            use soybean::prelude::*;

            use crate::example_networks::gpt::{Gpt, gpt};

            // Long enough for the fused attention kernel.
            pub(crate) fn forward(x: Tensor<i32, 4, 32>, y: Tensor<i32, 4, 32>) -> (Tensor, Tensor) {
                let sizes =
                    Gpt { vocabulary: 24, width: 32, n_heads: 4, n_layers: 2, dropout: 0.1 };
                let logits = gpt(x, sizes);
                (logits.cross_entropy(y), logits)
            }
        })*
    };
}

texts! {
    texts_in_f32_on_one on 1 in "f32";
    texts_in_f32_on_eight on 8 in "f32";
    texts_in_f32_on_two on 2 in "f32";
    texts_in_tf32_on_one on 1 in "tf32";
    texts_in_tf32_on_two on 2 in "tf32";
    texts_in_tf32_on_eight on 8 in "tf32";
    texts_in_bf16_on_one on 1 in "bf16";
    texts_in_bf16_on_two on 2 in "bf16";
    texts_in_bf16_on_eight on 8 in "bf16";
}

// Before a batch norm the gradient of a bias is zero up to rounding, which Adam would amplify.
macro_rules! images {
    ($($name:ident on $gpus:literal in $precision:literal;)*) => {
        $(#[soybean::model(gpus = $gpus, precision = $precision, optimizer = sgd(momentum = 0.9))]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(x: Tensor<f32, 12, 3, 8, 8>, y: Tensor<i32, 12>) -> (Tensor, Tensor) {
                let mut h = nn::batch_norm(nn::conv2d(x, 12, nn::Window { kernel: 3, stride: 1, padding: 1 })).relu();
                h = h.max_pool2d(2, 2, 0);
                h = h + nn::batch_norm(nn::conv2d(h, 12, nn::Window { kernel: 3, stride: 1, padding: 1 })).relu().dropout(0.1);
                let logits = nn::linear(h.avg_pool2d(2, 2, 0).flatten(), 12);
                (logits.cross_entropy(y), logits)
            }
        })*
    };
}

images! {
    images_in_f32_on_six on 6 in "f32";
    images_in_f32_on_twelve on 12 in "f32";
    images_in_tf32_on_two on 2 in "tf32";
    images_in_bf16_on_six on 6 in "bf16";
}

macro_rules! tests {
    ($($test:ident: [$($network:ident),*], $settings:expr;)*) => {
        $(#[test]
        fn $test() {
            let path = concat!("cuda::networks::", stringify!($test));
            let settings: &[(&str, &str)] = &$settings;
            on_virtual_gpus(path, settings, |machine| {
                $(learns_as_on_the_cpu(machine, &Model::of::<$network::Network>());)*
            });
        })*
    };
}

tests! {
    texts_in_f32: [texts_in_f32_on_one, texts_in_f32_on_two, texts_in_f32_on_eight], [];
    texts_in_tf32: [texts_in_tf32_on_one, texts_in_tf32_on_two, texts_in_tf32_on_eight], [];
    texts_in_bf16: [texts_in_bf16_on_one, texts_in_bf16_on_two, texts_in_bf16_on_eight], [];
    texts_on_eight_ranks_of_three_gpus: [texts_in_f32_on_eight, texts_in_bf16_on_eight], [("SOYBEAN_FAKE_DEVICES", "3")];
    images: [images_in_f32_on_six, images_in_tf32_on_two, images_in_bf16_on_six], [];
    images_on_four_gpus: [images_in_f32_on_six, images_in_f32_on_twelve, images_in_bf16_on_six], [("SOYBEAN_FAKE_DEVICES", "4")];
}

#[test]
fn text_models_use_fused_attention() {
    let models = [
        Model::of::<texts_in_f32_on_eight::Network>(),
        Model::of::<texts_in_bf16_on_two::Network>(),
    ];
    for model in models {
        let Model::Generated(model) = model else { unreachable!("it is generated") };
        assert!(model.kernels().iter().any(|it| matches!(it, Kernel::Attend(_))));
    }
}

/// All optimizers with settings. One uses all options around its rule.
fn optimizers() -> [Optimizer; 4] {
    let setting = |name: &str, value| [(name.to_owned(), Argument::Float(value))];
    let decayed = optimizer("adamw", &setting("weight_decay", 0.1)).expect("known");
    let everything = Optimizer {
        no_decay: vec!["*.b".to_owned()],
        clip_norm: Some(0.5),
        accumulate: 2,
        ema: Some(0.9),
        non_finite: NonFinite::Scale,
        ..decayed.clone()
    };
    [sgd(0.9), optimizer("adam", &[]).expect("known"), decayed, everything]
}

#[test]
fn perceptrons_in_all_precisions() {
    on_virtual_gpus("cuda::networks::perceptrons_in_all_precisions", &[], |machine| {
        for n_ranks in [1, 2, 5, 8] {
            for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
                learns_as_on_the_cpu(machine, &Model::perceptron(n_ranks, precision, sgd(0.9)));
            }
        }
    });
}

#[test]
fn perceptrons_on_four_gpus_with_all_optimizers() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "4")];
    let path = "cuda::networks::perceptrons_on_four_gpus_with_all_optimizers";
    on_virtual_gpus(path, &settings, |machine| {
        for optimizer in optimizers() {
            for n_ranks in [6, 8, 12] {
                let model = Model::perceptron(n_ranks, Precision::F32, optimizer.clone());
                learns_as_on_the_cpu(machine, &model);
            }
        }
    });
}
