//! Buckets of collectives change no bit of a training step, and move the bytes of the plan.

use std::sync::Arc;

use soybean::{
    Config, Device,
    runtime::{Trainer, View},
};
use soybean_compiler::{
    Optimizer, Strategy, build_network, optimizer, program, program_without_buckets, round,
    tiling::search,
};
use soybean_plan::{DType, Executable, Mesh, Precision, Program};
use soybean_zoo::{Model, Transformer, perceptron, resnet20};

const DECODER: Transformer =
    Transformer { batch: 8, tokens: 32, width: 32, n_heads: 4, n_blocks: 2, n_words: 64 };

/// Returns the batch of a program; labels and words are below 10.
fn batch(program: &Program) -> Vec<(Vec<f32>, Vec<i32>)> {
    let inputs = program.tables.inputs.iter();
    let numbers = inputs.map(|it| match (it.dtype, it.tile.shape.n_elements()) {
        (DType::I32, n) => (Vec::new(), (0..10).cycle().take(n).collect()),
        (_, n) => {
            (((0..n).map(|it| (it * 7919 % 2003) as f32 / 1001.0 - 1.0).collect()), Vec::new())
        }
    });
    numbers.collect()
}

/// Returns the bits of the losses of three steps, of an evaluation and of all parameters, and
/// checks the bytes of each step.
fn bits(program: Program) -> Vec<u32> {
    let batch = batch(&program);
    let views: Vec<View<'_>> = batch
        .iter()
        .map(|(floats, integers)| match floats.is_empty() {
            true => View::I32(integers),
            false => View::F32(floats),
        })
        .collect();
    let (train_bytes, evaluate_bytes) =
        (program.tables.train_bytes(), program.tables.entries[0].bytes);
    let config = Config { seed: 5, learning_rate: 0.05, device: Device::Cpu, ..Config::default() };
    // SAFETY: the program is the compiler's.
    #[expect(unsafe_code, reason = "tests vouch for their programs")]
    let program = unsafe { Executable::new(program) };
    let mut trainer = Trainer::new_shared(Arc::new(program), config).unwrap();
    let mut numbers = Vec::new();
    for _ in 0..3 {
        numbers.push(trainer.step(&views).unwrap());
        assert_eq!(trainer.moved_bytes(), train_bytes);
    }
    numbers.push(trainer.evaluate(&views).unwrap().loss);
    assert_eq!(trainer.moved_bytes(), evaluate_bytes);
    numbers.extend(trainer.parameters().unwrap().into_iter().flat_map(|it| it.1.data));
    assert!(numbers.iter().all(|it| it.is_finite()));
    numbers.iter().map(|it| it.to_bits()).collect()
}

fn n_transfers(program: &Program) -> usize {
    program.train[0].iter().filter(|it| program.kernels[it.kernel].transfer().is_some()).count()
}

#[test]
fn training_has_the_same_bits_with_and_without_buckets() {
    let clipped = Optimizer { clip_norm: Some(0.5), ..optimizer("adam", &[]).unwrap() };
    let momentum = optimizer("sgd", &[]).unwrap();
    let cases = [
        (perceptron(24, &[16; 6]), momentum.clone()),
        (DECODER.decoder(), clipped),
        (resnet20(8), momentum),
    ];
    for (Model { builder, loss, .. }, optimizer) in cases {
        let network = build_network(builder, loss, &[], &optimizer).unwrap();
        for (n_ranks, strategy, precision) in [
            (2, Strategy::Data, Precision::F32),
            (8, Strategy::Auto, Precision::F32),
            (4, Strategy::Data, Precision::Bf16),
        ] {
            let found =
                search(&round(network.clone(), precision), Mesh::new(n_ranks), &strategy.into());
            let joined = program("joined", &found.tiled);
            let alone = program_without_buckets("alone", &found.tiled, None);
            assert!(n_transfers(&joined) < n_transfers(&alone));
            let what = format!("{n_ranks} ranks, {strategy:?}, {precision}");
            assert!(bits(joined) == bits(alone), "{what}");
        }
    }
}
