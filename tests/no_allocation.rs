//! A training step allocates nothing on any rank.

use std::{array, sync::Arc};

use soybean::{Config, Device, runtime::Trainer};
use soybean_compiler::{Options, Strategy};
use soybean_plan::Precision;
use soybean_test_support::models::{Batch, finish_with, perceptron_model, sgd};

fn main() {
    const N_STEPS: usize = 5;
    let batch = Batch::new(0);
    let views = batch.views();
    let config = Config { device: Device::Cpu, ..Config::default() };
    let cases = [1, 2, 6, 8].map(|it| (it, Precision::F32));
    for (n_gpus, precision) in cases.into_iter().chain([(4, Precision::Bf16)]) {
        let (builder, loss, outputs) = perceptron_model();
        let (name, strategy, optimizer) = ("model".to_owned(), Strategy::Auto, sgd(0.9));
        let options = Options { name, n_gpus, search: strategy.into(), precision, optimizer };
        let program = finish_with(builder, loss, &outputs, &options).program;
        let mut trainer = Trainer::new_shared(Arc::new(program), config.clone()).expect("sound");
        for _ in 0..3 {
            trainer.step(&views).expect("warms up");
        }
        let mut steps =
            || -> [f32; N_STEPS] { array::from_fn(|_| trainer.step(&views).unwrap_or(f32::NAN)) };
        let (losses, n_allocations) = soybean_counting_allocator::count_during(&mut steps);
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
        assert_eq!(n_allocations, 0, "{n_gpus} devices");
        trainer.queue(&views).expect("the batch fits");
        let mut steps = || -> [f32; N_STEPS] {
            array::from_fn(|_| trainer.step_queued(Some(&views)).unwrap_or(f32::NAN))
        };
        let (losses, n_allocations) = soybean_counting_allocator::count_during(&mut steps);
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
        // The list of the tensors is allocated, but not their elements.
        assert!(n_allocations <= N_STEPS, "{n_gpus} devices: {n_allocations} with batches queued");
    }
}
