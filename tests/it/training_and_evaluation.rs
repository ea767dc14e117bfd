//! Operators that differ between training steps and evaluations: dropout and batch norm.

use crate::support::arrays::tensor;
use soybean::{
    Array, Config, Network, Trainer,
    eager::{self, Tensor},
};

const BATCH: usize = 12;
const MOMENTUM: f64 = 0.25;

macro_rules! models {
    ($($name:ident on $gpus:literal,)*) => {
        $(#[soybean::model(gpus = $gpus)]
        pub(crate) mod $name {
            use soybean::prelude::*;

            pub(crate) fn forward(
                x: Tensor<f32, 12, 6, 4>,
                y: Tensor<f32, 12>,
            ) -> (Tensor, Tensor) {
                let mean = buffer("running_mean", [6], zeros());
                let var = buffer("running_var", [6], ones());
                let weight = param("weight", [6], uniform(0.5, 1.5));
                let normal = x.batch_norm(mean, var, weight, param("bias", [6], zeros()), 0.25, 0.1);
                let w = param("w", [24, 8], normal_weights());
                let hidden = normal.flatten().matmul(w).relu().dropout(0.5);
                let kept = hidden.reshape([12, 2, 4]).dropout(0.25);
                let prediction = kept.mean([1, 2]);
                (prediction.mse(y), prediction)
            }

            fn normal_weights() -> Init {
                normal(0.3)
            }
        })*
    };
}

models! {
    alone on 1,
    two on 2,
    three on 3,
    six on 6,
}

fn batch(step: usize) -> (Vec<f32>, Vec<f32>) {
    let number = |it: usize| ((it * 7919 + step * 104_729) % 2003) as f32 / 700.0 - 1.0;
    ((0..BATCH * 24).map(number).collect(), (0..BATCH).map(|it| number(it * 31)).collect())
}

/// Returns the loss of the function as ordinary Rust, in training or in evaluation.
fn oracle(parameters: &[(String, Array)], (x, y): &(Vec<f32>, Vec<f32>), step: Option<u64>) -> f64 {
    let double = |it: &[f32]| it.iter().map(|it| f64::from(*it)).collect::<Vec<_>>();
    eager::scope(|| {
        let values: Vec<Tensor> = parameters.iter().map(|(_, array)| tensor(array)).collect();
        let (x, y) = (Tensor::new([12, 6, 4], &double(x)), Tensor::new([12], &double(y)));
        let loss = || eager::with_parameters(&values, || alone::forward(x, y).0.item());
        match step {
            Some(step) => eager::in_training(5, step, loss),
            None => loss(),
        }
    })
}

/// Returns the new value of a buffer: moving means of the batch's statistics.
fn followed(before: &[f32], x: &[f32], statistic: fn(&[f64]) -> f64) -> Vec<f64> {
    let next = |(channel, before): (usize, &f32)| {
        let of_channel = |at: &usize| at / 4 % 6 == channel;
        let numbers: Vec<f64> =
            (0..x.len()).filter(of_channel).map(|it| f64::from(x[it])).collect();
        (1.0 - MOMENTUM) * f64::from(*before) + MOMENTUM * statistic(&numbers)
    };
    before.iter().enumerate().map(next).collect()
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

fn variance(numbers: &[f64]) -> f64 {
    let mean = mean(numbers);
    numbers.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / (numbers.len() - 1) as f64
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-5 * expected.abs().max(1.0), "{found}, not {expected}");
}

fn buffer<'a>(parameters: &'a [(String, Array)], name: &str) -> &'a [f32] {
    &parameters.iter().find(|it| it.0 == name).expect("the model has it").1.data
}

/// Creates a model's batch of `x` and `y`.
type Batches<N> = for<'a> fn(&'a [f32], &'a [f32]) -> <N as Network>::Batch<'a>;

/// Runs four steps and compares each with the function; returns their losses.
fn losses<N: Network>(batches: Batches<N>) -> Vec<f32> {
    let config = Config { seed: 5, learning_rate: 0.1, ..Config::default() };
    let mut trainer = Trainer::<N>::new(config).expect("a device");
    (1..=4).map(|step| checked_step(&mut trainer, batches, step)).collect()
}

fn checked_step<N: Network>(trainer: &mut Trainer<N>, batches: Batches<N>, step: usize) -> f32 {
    let data = batch(step);
    let batch = batches(&data.0, &data.1);
    let before = trainer.parameters().expect("healthy");
    let evaluated = trainer.evaluate(&batch).expect("healthy").loss;
    close(f64::from(evaluated), oracle(&before, &data, None));
    let loss = trainer.step(&batch).expect("healthy");
    close(f64::from(loss), oracle(&before, &data, Some(step as u64)));
    assert_ne!(evaluated, loss);
    assert_eq!(trainer.moved_bytes(), N::PLAN.bytes_total);
    let after = trainer.parameters().expect("healthy");
    check_buffer("running_mean", &before, &after, &data.0, mean);
    check_buffer("running_var", &before, &after, &data.0, variance);
    loss
}

fn check_buffer(
    name: &str,
    before: &[(String, Array)],
    after: &[(String, Array)],
    x: &[f32],
    statistic: fn(&[f64]) -> f64,
) {
    let expected = followed(buffer(before, name), x, statistic);
    for (found, expected) in buffer(after, name).iter().zip(expected) {
        close(f64::from(*found), expected);
    }
}

#[test]
fn steps_and_evaluations_are_those_of_the_function_on_any_number_of_devices() {
    let expected = losses::<alone::Network>(|x, y| alone::Batch { x, y });
    for losses in [
        losses::<two::Network>(|x, y| two::Batch { x, y }),
        losses::<three::Network>(|x, y| three::Batch { x, y }),
        losses::<six::Network>(|x, y| six::Batch { x, y }),
    ] {
        for (found, expected) in losses.iter().zip(&expected) {
            close(f64::from(*found), f64::from(*expected));
        }
    }
}
