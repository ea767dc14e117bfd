//! Tests of models in inference mode: with the same weights, the outputs equal those of the CPU,
//! and the bytes equal the prediction.

use soybean::{
    Config, Device, Network,
    plan::{Precision, Rows},
    runtime::{self, Array, View},
};

use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus};

use super::networks::Columns;

/// One prediction kernel by kernel, one that captures a graph, and one with that graph.
const N_PREDICTIONS: usize = 3;

macro_rules! predictors {
    ($($name:ident of $batch:literal on $gpus:literal in $precision:literal;)*) => {
        $(#[soybean::model(gpus = $gpus, precision = $precision, mode = "inference")]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(x: Tensor<f32, $batch, 3, 8, 8>) -> (Tensor, Tensor) {
                let mut h = nn::batch_norm(nn::conv2d(x, 12, nn::Window { kernel: 3, stride: 1, padding: 1 })).relu();
                h = h.max_pool2d(2, 2, 0).dropout(0.5);
                h = h + nn::batch_norm(nn::conv2d(h, 12, nn::Window { kernel: 3, stride: 1, padding: 1 })).relu();
                let features = h.avg_pool2d(2, 2, 0).flatten();
                (nn::linear(features, 12), features)
            }
        })*
    };
}

predictors! {
    whole_on_one of 4 on 1 in "f32";
    split_on_four of 8 on 4 in "f32";
    one_on_four of 1 on 4 in "f32";
    three_on_six of 3 on 6 in "bf16";
}

macro_rules! decoders {
    ($($name:ident on $gpus:literal in $precision:literal;)*) => {
        $(/// Attends to what it has seen in earlier predictions, whose number is a state, too.
        #[soybean::model(gpus = $gpus, precision = $precision, mode = "inference")]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            pub(crate) fn forward(x: Tensor<f32, 2, 1, 16>) -> (Tensor, Tensor) {
                let n_before = state("n_before", [2]);
                n_before.assign(n_before + 1.0);
                let attention = nn::cached::Attention { n_heads: 4, capacity: 8 };
                (nn::cached::transformer_block(x, n_before, attention), n_before * 1.0)
            }
        })*
    };
}

decoders! {
    decoder_on_one on 1 in "f32";
    decoder_on_four on 4 in "f32";
    decoder_on_six on 6 in "bf16";
}

/// Entries over one state: a prompt of three tokens, then one token after another.
#[soybean::model(gpus = 4, mode = "inference", entries = (prefill, decode = 4))]
pub(crate) mod chat_on_four {
    use soybean::{
        nn::{self, cached::Attention},
        prelude::*,
    };

    const ATTENTION: Attention = Attention { n_heads: 4, capacity: 8 };

    pub(crate) fn prefill(x: Tensor<f32, 2, 3, 16>, n_before: Tensor<i32, 2>) -> Tensor {
        nn::cached::transformer_block(x, n_before, ATTENTION)
    }

    pub(crate) fn decode(n_before: Tensor<i32, 2>, y: Tensor<f32, 2, 1, 16>) -> Tensor {
        nn::cached::transformer_block(y, n_before, ATTENTION)
    }
}

/// Returns the outputs of a prompt and of two tokens after it, twice.
fn chat(device: Device) -> Vec<Array> {
    let config = Config { device, seed: 7, ..Config::default() };
    let mut predictor = chat_on_four::Predictor::new(config).unwrap();
    let entries = &chat_on_four::Network::model().tables().entries;
    let x: Vec<f32> = (0..96).map(|it| (it * it % 31) as f32 / 16.0 - 1.0).collect();
    let mut outputs = Vec::new();
    for _ in 0..2 {
        let batch = chat_on_four::Prefill { x: &x, n_before: &[0, 0] };
        outputs.extend(predictor.predict(&batch).unwrap());
        assert_eq!(predictor.moved_bytes(), entries[0].bytes);
        for place in [3_i32, 4, 5] {
            let y = &x[(place * 4) as usize..][..32];
            let batch = chat_on_four::Decode { n_before: &[place, 3], y };
            outputs.extend(predictor.predict(&batch).unwrap());
            assert_eq!(predictor.moved_bytes(), entries[1].bytes);
        }
    }
    outputs
}

#[test]
fn entries_share_states_on_gpus() {
    on_virtual_gpus("cuda::inference::entries_share_states_on_gpus", &[], |machine| {
        let expected = chat(Device::Cpu);
        for seed in 0..2 {
            machine.reset(seed);
            for (found, expected) in chat(Device::Cuda).iter().zip(&expected) {
                assert_eq!(found.shape, expected.shape);
                for (found, expected) in found.data.iter().zip(&expected.data) {
                    assert!((found - expected).abs() <= 2e-5, "{found}, not {expected}");
                }
            }
            assert_eq!(machine.n_complaints(), 0, "seed {seed}");
        }
    });
}

/// Returns the outputs of some batches. The last one has a single row.
fn predictions<N: Network>(device: Device) -> Vec<Vec<Array>> {
    let config = Config { device, seed: 7, ..Config::default() };
    let mut predictor = runtime::Predictor::new(N::model(), config).unwrap();
    let tables = N::model().tables();
    // Statistics other than the initial values of the buffers.
    let mut weights = predictor.parameters().unwrap();
    for (name, array) in &mut weights {
        let is_statistic = name.ends_with("running_mean") || name.ends_with("running_var");
        let next = |(at, it): (usize, &f32)| it + 0.125 * at as f32;
        if is_statistic {
            array.data = array.data.iter().enumerate().map(next).collect();
        }
    }
    predictor.set_parameters(&weights).unwrap();
    assert_eq!(predictor.parameters().unwrap(), weights);
    let mut predict = |batch: &[View<'_>]| {
        let outputs = predictor.predict(0, batch).unwrap();
        assert_eq!(predictor.moved_bytes(), tables.entries[0].bytes, "{}", tables.name);
        assert_eq!(predictor.moved_bytes(), N::PLAN.bytes_total, "{}", tables.name);
        assert_eq!(predictor.fed_bytes(), tables.fed_bytes(0), "{}", tables.name);
        outputs
    };
    let mut found: Vec<_> =
        (0..N_PREDICTIONS).map(|step| predict(&Columns::new(tables, step).views())).collect();
    if tables.outputs[0].rows == (Rows::Own { dim: 0 }) {
        found.push(predict(&[View::F32(&[0.25; 3 * 8 * 8])]));
    }
    found
}

fn predicts_as_on_the_cpu<N: Network>(machine: &Machine) {
    let expected = predictions::<N>(Device::Cpu);
    let tables = N::model().tables();
    // Relative to the largest number: reordered sums of some hundred terms, or rounding by 2^-9 per
    // tensor in bf16.
    let tolerance = if tables.precision == Precision::F32 { 1e-5 } else { 2e-2 };
    for seed in 0..2 {
        machine.reset(seed);
        let found = predictions::<N>(Device::Cuda);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert_eq!(found.shape, expected.shape);
            let scale = expected.data.iter().fold(1e-3, |scale: f32, it| scale.max(it.abs()));
            for (found, expected) in found.data.iter().zip(&expected.data) {
                let error = (found - expected).abs();
                assert!(error <= tolerance * scale, "{}: {found}, not {expected}", tables.name);
            }
        }
        assert_eq!(machine.n_complaints(), 0, "{}, seed {seed}", tables.name);
    }
}

#[test]
fn predictions_equal_those_of_the_cpu() {
    on_virtual_gpus("cuda::inference::predictions_equal_those_of_the_cpu", &[], |machine| {
        predicts_as_on_the_cpu::<whole_on_one::Network>(machine);
        predicts_as_on_the_cpu::<split_on_four::Network>(machine);
        predicts_as_on_the_cpu::<one_on_four::Network>(machine);
        predicts_as_on_the_cpu::<three_on_six::Network>(machine);
        predicts_as_on_the_cpu::<decoder_on_one::Network>(machine);
        predicts_as_on_the_cpu::<decoder_on_four::Network>(machine);
        predicts_as_on_the_cpu::<decoder_on_six::Network>(machine);
        let predictor = split_on_four::Predictor::new(Config::default()).unwrap();
        assert!(predictor.device_line().contains("GPU"), "{}", predictor.device_line());
    });
}
