//! Tests of users' operators on GPUs: with text for GPUs, they compute what the CPU does.

use layer_crate::operators::distances_from_centers;
use soybean::{
    Config, Device, Network,
    operator::{Float, TensorMut, TensorRef},
    plan::Precision,
    runtime::Trainer,
};
use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus};

use super::networks::Columns;

const N_STEPS: usize = 4;

macro_rules! models {
    ($($name:ident on $gpus:literal in $precision:literal;)*) => {
        $(#[soybean::model(gpus = $gpus, precision = $precision)]
        pub(crate) mod $name {
            use soybean::prelude::*;

            use super::distances_from_centers;

            pub(crate) fn forward(x: Tensor<f32, 24, 6>, y: Tensor<f32, 24, 4>) -> Tensor {
                let h = x.matmul(param("w", [6, 10], normal(0.5)));
                (distances_from_centers(h, 4) * 0.1).mse(y)
            }
        })*
    };
}

models! {
    on_one on 1 in "f32";
    on_six on 6 in "f32";
    on_eight on 8 in "bf16";
}

#[soybean::operator("i->i", gradient = none)]
fn on_cpus<F: Float>(x: TensorRef<'_, F>, result: TensorMut<'_, F>) {
    result.data.copy_from_slice(x.data);
}

#[soybean::model(gpus = 2, mode = "inference")]
mod on_cpus_alone {
    use soybean::prelude::*;

    use super::on_cpus;

    pub(crate) fn forward(x: Tensor<f32, 4>) -> Tensor {
        on_cpus(x)
    }
}

fn losses<N: Network>(device: Device) -> Vec<f32> {
    let tables = N::model().tables();
    let config = Config { device, learning_rate: 0.1, ..Config::default() };
    let mut trainer = Trainer::new(N::model(), config).unwrap();
    let step = |step| {
        let loss = trainer.step(&Columns::new(tables, step).views()).unwrap();
        assert_eq!(trainer.moved_bytes(), tables.train_bytes());
        loss
    };
    (0..N_STEPS).map(step).collect()
}

fn trains_as_on_the_cpu<N: Network>(machine: &Machine) {
    let expected = losses::<N>(Device::Cpu);
    // Reordered sums, and in `bf16` numbers rounded the other way.
    let is_exact = N::model().tables().precision == Precision::F32;
    let tolerance = if is_exact { 1e-5 } else { 1e-2 };
    for seed in 0..2 {
        machine.reset(seed);
        for (found, expected) in losses::<N>(Device::Cuda).iter().zip(&expected) {
            assert!((found - expected).abs() <= tolerance * expected, "{found}, not {expected}");
        }
        assert_eq!(machine.n_complaints(), 0, "seed {seed}");
    }
}

#[test]
fn operators_train_as_on_the_cpu() {
    on_virtual_gpus("cuda::custom_operators::operators_train_as_on_the_cpu", &[], |machine| {
        trains_as_on_the_cpu::<on_one::Network>(machine);
        trains_as_on_the_cpu::<on_six::Network>(machine);
        trains_as_on_the_cpu::<on_eight::Network>(machine);
    });
}

#[test]
fn operators_without_text_for_gpus_are_an_error() {
    let name = "cuda::custom_operators::operators_without_text_for_gpus_are_an_error";
    on_virtual_gpus(name, &[], |_| {
        let config = Config { device: Device::Cuda, ..Config::default() };
        let error = on_cpus_alone::Predictor::new(config).unwrap_err().to_string();
        assert!(error.contains("operator `on_cpus` has no text for GPUs"), "{error}");
    });
}
