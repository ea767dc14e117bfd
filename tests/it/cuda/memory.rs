//! Tests of the memory that GPUs hold.

use soybean::{Device, Network};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;

use super::trainer;

/// A convolution, whose library needs a workspace, and products of rounded parameters.
#[soybean::model(gpus = 1, precision = "bf16", optimizer = sgd(momentum = 0.9))]
pub(crate) mod network {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 8, 3, 16, 16>, y: Tensor<i32, 8>) -> Tensor {
        let window = nn::Window { kernel: 3, stride: 1, padding: 1 };
        let x = nn::conv2d(x, 16, window).relu();
        nn::linear(x.flatten(), 10).cross_entropy(y)
    }
}

#[test]
fn what_gpus_hold_beside_the_plan_is_counted() {
    let test = "cuda::memory::what_gpus_hold_beside_the_plan_is_counted";
    on_virtual_gpus(test, &[("SOYBEAN_FAKE_DEVICES", "1")], |machine| {
        let trainer = trainer::<network::Network>(Device::Cuda, true);
        let planned = network::Network::model().tables().arena_bytes;
        let beside_plan = trainer.memory_beside_plan();
        println!("{planned} B of the plan, and {beside_plan:?}");
        assert_eq!(machine.used_bytes() as u64, planned as u64 + beside_plan.total());
        let parts = [beside_plan.tensors, beside_plan.workspace, beside_plan.transfers];
        assert!(parts.iter().all(|it| *it > 0), "{beside_plan:?}");
    });
}
