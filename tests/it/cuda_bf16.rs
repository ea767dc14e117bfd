//! Test of a convolutional network in `bf16` on virtual GPUs: up to rounding, the losses equal the
//! CPU's. cuDNN computes the convolutions, with channels last.

use soybean::{Array, Config, Device, Network, Trainer};
use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus};

const BATCH: usize = 16;
const N_CLASSES: usize = 10;
const N_STEPS: usize = 10;

/// Both devices round to `bf16` as the program says, and GPUs round filter gradients once more.
/// They round biases, but not the results of convolutions to which biases are added. Each rounding
/// is at most 2^-8, about ten follow one another, and half of the errors cancel.
const TOLERANCE: f32 = 2e-2;

macro_rules! images {
    ($($name:ident on $gpus:literal;)*) => {
        $(#[soybean::model(gpus = $gpus, precision = "bf16", optimizer = adamw())]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(x: Tensor<f32, 16, 3, 12, 12>, y: Tensor<i32, 16>) -> Tensor {
                let h = nn::conv2d(x, 8, nn::Window { kernel: 3, stride: 1, padding: 1 }).relu();
                let h = nn::conv2d(h, 16, nn::Window { kernel: 3, stride: 1, padding: 1 }).relu().max_pool2d(2, 2, 0);
                // A convolution in two groups, then a strided pointwise one.
                let w = param("grouped", [16, 8, 3, 3], he_normal());
                let h = h.conv2d(w, 1, 1, 1, 2).relu();
                let h = nn::conv2d(h, 24, nn::Window { kernel: 1, stride: 2, padding: 0 }).relu();
                nn::linear(h.flatten(), 10).cross_entropy(y)
            }
        })*
    };
}

images! {
    images on 1;
    images_on_four on 4;
}

/// Returns pseudo-random numbers.
fn noise(n: usize, step: usize) -> impl Iterator<Item = usize> {
    (0..n).map(move |it| ((it + 1) * 7919 + step * 104_729) % 2003)
}

fn batch(step: usize) -> (Vec<f32>, Vec<i32>) {
    let images = noise(BATCH * 3 * 12 * 12, step).map(|it| it as f32 / 1001.0 - 1.0).collect();
    (images, noise(BATCH, step).map(|it| i32::try_from(it % N_CLASSES).unwrap()).collect())
}

/// Returns the losses of training repeatedly on the same two batches.
fn losses<N: Network>(
    device: Device,
    step: impl Fn(&mut Trainer<N>, &[f32], &[i32]) -> f32,
) -> Vec<f32> {
    // Measurements would count as calls of cuDNN.
    let config = Config { device, learning_rate: 0.01, autotunes: false, ..Config::default() };
    let mut trainer = Trainer::<N>::new(config).unwrap();
    let mut losses = Vec::new();
    for number in 0..N_STEPS {
        let (x, y) = batch(number % 2);
        losses.push(step(&mut trainer, &x, &y));
        assert_eq!(trainer.moved_bytes(), N::PLAN.bytes_total);
    }
    losses
}

macro_rules! losses_of {
    ($model:ident, $device:expr) => {
        losses::<$model::Network>($device, |trainer, x, y| {
            trainer.step(&$model::Batch { x, y }).unwrap()
        })
    };
}

fn assert_close(found: &[f32], expected: &[f32]) {
    let is_near =
        |(found, expected): (&f32, &f32)| (found - expected).abs() <= TOLERANCE * expected.abs();
    let are_near = found.len() == expected.len() && found.iter().zip(expected).all(is_near);
    assert!(are_near, "expected {expected:?}, found {found:?}");
}

/// Checks that cuDNN computed all convolutions, and no generated kernel did.
fn assert_by_library(machine: &Machine, n_ranks: u64) {
    let n_calls = |name: &str| machine.n_calls(&format!("cudnn: {name}"));
    // Graphs repeat what their capture recorded. The first layer needs no gradients of its images.
    let with_bias = n_calls("forward with epilogue");
    let with_relu_gradient = n_calls("data with epilogue");
    let n_data = n_calls("data") + with_relu_gradient;
    let n = [n_calls("forward") + with_bias, n_data, n_calls("filter")];
    // Before pooling, the gradient of ReLU is one of pooled elements.
    assert_eq!(with_relu_gradient, n[1], "{n:?}");
    // The convolution in two groups has no bias, and the last result is copied for the dense layer.
    assert_eq!(with_bias * 2, n[0], "{n:?}");
    assert!(n[0] >= 4 * n_ranks && n[1] >= 3 * n_ranks && n[2] >= 4 * n_ranks, "{n:?}");
    assert_eq!(n[0] * 3, n[1] * 4, "{n:?}");
    assert_eq!(n[0], n[2], "{n:?}");
}

#[test]
fn convolutions_in_bf16_on_one_gpu() {
    on_virtual_gpus("cuda_bf16::convolutions_in_bf16_on_one_gpu", &[], |machine| {
        let expected = losses_of!(images, Device::Cpu);
        // The loss falls by far more than the tolerance, so that wrong gradients would show.
        assert!(expected[N_STEPS - 1] < 0.9 * expected[0], "{expected:?}");
        for seed in 0..4 {
            machine.reset(seed);
            assert_close(&losses_of!(images, Device::Cuda), &expected);
            assert_by_library(machine, 1);
        }
    });
}

#[test]
fn convolutions_in_bf16_on_four_gpus() {
    on_virtual_gpus("cuda_bf16::convolutions_in_bf16_on_four_gpus", &[], |machine| {
        let expected = losses_of!(images_on_four, Device::Cpu);
        assert_close(&expected, &losses_of!(images, Device::Cpu));
        for seed in 0..4 {
            machine.reset(seed);
            assert_close(&losses_of!(images_on_four, Device::Cuda), &expected);
            assert_by_library(machine, 4);
        }
    });
}

/// cuDNN may refuse what its documentation allows.
#[test]
fn kernels_add_biases_that_cudnn_refuses() {
    let settings = [("SOYBEAN_FAKE_NO_ACTIVATIONS", "1")];
    on_virtual_gpus("cuda_bf16::kernels_add_biases_that_cudnn_refuses", &settings, |machine| {
        let expected = losses_of!(images, Device::Cpu);
        assert_close(&losses_of!(images, Device::Cuda), &expected);
        assert_eq!(machine.n_calls("cudnn: forward with epilogue"), 0);
        assert!(machine.n_calls("cudnn: forward") >= 4);
        assert_eq!(machine.n_complaints(), 0);
    });
}

/// Ranks that share a GPU share its kernels, but not their workspace.
#[test]
fn convolutions_in_bf16_on_a_gpu_that_four_ranks_share() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "1")];
    on_virtual_gpus(
        "cuda_bf16::convolutions_in_bf16_on_a_gpu_that_four_ranks_share",
        &settings,
        |machine| {
            let expected = losses_of!(images_on_four, Device::Cpu);
            for seed in 0..6 {
                machine.reset(seed);
                assert_close(&losses_of!(images_on_four, Device::Cuda), &expected);
            }
        },
    );
}

#[soybean::model(gpus = 2, precision = "bf16", optimizer = adamw())]
pub(crate) mod dense {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 16, 24>, y: Tensor<i32, 16>) -> Tensor {
        nn::linear(nn::linear(x, 32).relu(), 10).cross_entropy(y)
    }
}

/// Products read rounded copies of parameters, which updates write. Whoever sets parameters renews
/// the copies.
#[test]
fn rounded_copies_follow_the_parameters() {
    on_virtual_gpus("cuda_bf16::rounded_copies_follow_the_parameters", &[], |machine| {
        let x: Vec<f32> = noise(BATCH * 24, 0).map(|it| it as f32 / 1001.0 - 1.0).collect();
        let y = noise(BATCH, 1).map(|it| i32::try_from(it % N_CLASSES).unwrap());
        let y: Vec<i32> = y.collect();
        let batch = dense::Batch { x: &x, y: &y };
        let losses = |device: Device| {
            let config = Config { device, learning_rate: 0.05, ..Config::default() };
            let mut trainer = Trainer::<dense::Network>::new(config).unwrap();
            let first = trainer.parameters().unwrap();
            let mut losses = Vec::new();
            for _ in 0..2 {
                for _ in 0..4 {
                    losses.push(trainer.step(&batch).unwrap());
                    losses.push(trainer.evaluate(&batch).unwrap().loss);
                }
                for (name, array) in &first {
                    let data = array.data.iter().map(|it| -it).collect();
                    let negated = Array { data, ..array.clone() };
                    trainer.set_parameter(name, &negated).unwrap();
                }
            }
            losses
        };
        let expected = losses(Device::Cpu);
        // The loss falls, and jumps back with other parameters.
        assert!(expected[7] < 0.8 * expected[0] && expected[8] > 1.2 * expected[7], "{expected:?}");
        for seed in 0..3 {
            machine.reset(seed);
            assert_close(&losses(Device::Cuda), &expected);
        }
    });
}
