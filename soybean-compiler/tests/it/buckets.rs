//! Collectives of one kind along the same axes run as one step where that saves time.

use std::collections::{BTreeMap, btree_map::Entry};

use expect_test::expect;
use proptest::prelude::*;
use soybean_compiler::{
    Compiled, Optimizer, Options, SearchRequest, Strategy as Search, build_network, compile,
    optimizer, program, program_text, program_within, program_without_buckets, round,
    tiling::{SearchResult, search},
    verify_program,
};
use soybean_plan::{
    Bucket, Cluster, CollectiveKind, Kernel, Mesh, Precision, Program, Step, Topology,
};
use soybean_zoo::{Model, Transformer, ZOO, resnet20};

use crate::support::{
    self,
    random_networks::{Sizes, random_model},
};

const SMALL: Transformer =
    Transformer { batch: 8, tokens: 64, width: 64, n_heads: 4, n_blocks: 2, n_words: 96 };

fn found(model: Model, n_ranks: usize, strategy: Search, precision: Precision) -> SearchResult {
    let Model { builder, loss, .. } = model;
    let network = build_network(builder, loss, &[], &optimizer("adam", &[]).unwrap()).unwrap();
    search(&round(network, precision), Mesh::new(n_ranks), &strategy.into())
}

fn plans() -> Vec<(String, SearchResult)> {
    let mlp = support::classifier(64, &[32, 64, 64, 64, 32], true);
    let mlp = Model::new(mlp.0, mlp.1, mlp.2);
    let models = [("mlp", mlp), ("resnet", resnet20(8)), ("decoder", SMALL.decoder())];
    let mut plans = Vec::new();
    for (name, model) in models {
        for precision in [Precision::F32, Precision::Bf16] {
            for strategy in [Search::Auto, Search::Data] {
                let found = found(model.clone(), 4, strategy, precision);
                plans.push((format!("{name} {precision} {strategy:?}"), found));
            }
        }
    }
    plans
}

fn transfers<'a>(program: &'a Program, steps: &'a [Step]) -> impl Iterator<Item = &'a Bucket> {
    steps.iter().filter_map(|it| program.kernels[it.kernel].transfer())
}

/// The numbers of the values that steps compute: equal numbers for the same kernel of the same
/// values.
#[derive(Default)]
struct Values(BTreeMap<String, usize>);

impl Values {
    fn number(&mut self, text: String) -> usize {
        let next = self.0.len();
        match self.0.entry(text) {
            Entry::Occupied(it) => *it.get(),
            Entry::Vacant(it) => *it.insert(next),
        }
    }

    /// Returns the numbers of the values that the buffers hold after some steps.
    fn after(&mut self, program: &Program, steps: &[Step]) -> Vec<usize> {
        let n_buffers = program.tables.buffers.len();
        let mut held: Vec<usize> =
            (0..n_buffers).map(|it| self.number(format!("buffer {it}"))).collect();
        for step in steps {
            let results: Vec<(usize, usize)> = match &program.kernels[step.kernel] {
                Kernel::Communicate(bucket) => {
                    let buffers = step.inputs.iter().zip(&step.results);
                    let of = |((input, result), it): ((&usize, &usize), &_)| {
                        (*result, self.number(format!("{it:?} of {}", held[*input])))
                    };
                    buffers.zip(bucket.collectives.iter()).map(of).collect()
                }
                kernel => {
                    let inputs: Vec<usize> = step.inputs.iter().map(|it| held[*it]).collect();
                    let results = step.results.iter().enumerate();
                    let of = |(at, result): (usize, &usize)| {
                        (*result, self.number(format!("{at} of {kernel:?} of {inputs:?}")))
                    };
                    results.map(of).collect()
                }
            };
            results.into_iter().for_each(|(result, value)| held[result] = value);
        }
        held
    }
}

/// Checks that a program computes the same values in all buffers as without buckets, by the same
/// kernels and collectives, and moves the same bytes.
fn check_equal(name: &str, joined: &Program, alone: &Program) {
    assert_eq!(verify_program(joined), Ok(()), "{name}");
    assert!(transfers(alone, &alone.train[0]).all(|it| it.collectives.len() == 1), "{name}");
    let mesh = joined.tables.mesh;
    let bytes = |it: &Program, steps: &[Step]| -> u64 {
        transfers(it, steps).map(|it| it.bytes(&mesh)).sum()
    };
    assert_eq!(bytes(joined, &joined.train[0]), alone.tables.train_bytes(), "{name}");
    assert_eq!(bytes(joined, &joined.evaluate[0]), alone.tables.entries[0].bytes, "{name}");
    assert_eq!(joined.tables.train_bytes(), alone.tables.train_bytes(), "{name}");
    let mut values = Values::default();
    for phase in [|it: &Program| it.train[0].clone(), |it: &Program| it.evaluate[0].clone()] {
        let (one, other) = (phase(joined), phase(alone));
        let n_collectives = |program, steps| -> usize {
            transfers(program, steps).map(|it| it.collectives.len()).sum()
        };
        assert_eq!(n_collectives(joined, &one), n_collectives(alone, &other), "{name}");
        assert_eq!(values.after(joined, &one), values.after(alone, &other), "{name}");
    }
}

#[test]
fn buckets_change_neither_values_nor_bytes() {
    let (mut n_joined, mut n_alone) = (0, 0);
    for (name, found) in plans() {
        let (joined, alone) =
            (program(&name, &found.tiled), program_without_buckets(&name, &found.tiled, None));
        check_equal(&name, &joined, &alone);
        assert_eq!(joined, program(&name, &found.tiled), "{name}");
        n_joined += transfers(&joined, &joined.train[0]).count();
        n_alone += transfers(&alone, &alone.train[0]).count();
    }
    assert!(3 * n_joined < 2 * n_alone, "{n_joined} of {n_alone}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn buckets_of_random_networks_change_neither_values_nor_bytes(seed in any::<u64>()) {
        let sizes = Sizes { n_operators: 6, extents: &[4, 8], is_trained: true };
        let (builder, loss) = random_model(seed, &sizes);
        let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
        for strategy in [Search::Auto, Search::Data, Search::Model] {
            let found = search(&network, Mesh::new(4), &strategy.into());
            let joined = program("random", &found.tiled);
            check_equal("random", &joined, &program_without_buckets("random", &found.tiled, None));
        }
    }
}

#[test]
fn gradients_of_a_perceptron_share_a_bucket() {
    let (builder, loss, _) = support::classifier(64, &[16, 32, 8], true);
    let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
    let found = search(&network, Mesh::new(2), &Search::Data.into());
    let program = program("perceptron", &found.tiled);
    expect![[r#"
        program perceptron on [2]
        train:
          b7 = contract 32x16x32 (b0, b1)
          b8 = map [32, 32] {relu(add(x0, x1))} (b7, b2)
          b9 = contract 32x32x8 (b8, b3)
          b10 = max [32, 8] {add(x0, x1)} (b9, b4)
          b11 = map [32, 8] {exp(sub(add(x1, x2), x0))} (b10, b9, b4)
          b12 = sum [32, 8] {x0} (b11)
          b13 = sum [32, 8] {select(eq.i32(x0, x1), sub(add(x3, x4), x2), 0)} (b5, b6, b10, b9, b4)
          b14 = sum [32] {sub(log(x0), x1)} (b12, b13)
          b15 = all-reduce [] [red] -> [r] (b14)
          b17 = map [32, 8] {add(select(eq.i32(x0, x1), -0.015625, 0), mul(div(0.015625, x3), x2))} (b5, b6, b11, b12)
          b18 = sum [32, 8] {x0} (b17)
          b20 = slice [8] [r] -> [P0] (b4)
          b22 = contract 32x8x32 (b17, b3)
          b23 = contract 32x32x8 (b8, b17)
          b25 = slice [32, 8] [r] -> [P0] (b3)
          b27 = map [32, 32] {select(gt(x0, 0), x1, 0)} (b8, b22)
          b16 = map [] {div(x0, 64)} (b15)
          b28 = sum [32, 32] {x0} (b27)
          b30 = slice [32] [r] -> [P0] (b2)
          b32 = contract 16x32x32 (b0, b27)
          b19, b24, b29, b33 = reduce-scatter [8] [red] -> [P0], [32, 8] [red] -> [P0], [32] [red] -> [P0], [16, 32] [red] -> [P0] (b18, b23, b28, b32)
          b34 = slice [16, 32] [r] -> [P0] (b1)
          b21 = map [4] {select(eq(mul(x2, 0), 0), sub(x0, mul(s0, x1)), x0)} (b20, b19, b16)
          b26 = map [16, 8] {select(eq(mul(x2, 0), 0), sub(x0, mul(s0, x1)), x0)} (b25, b24, b16)
          b31 = map [16] {select(eq(mul(x2, 0), 0), sub(x0, mul(s0, x1)), x0)} (b30, b29, b16)
          b35 = map [8, 32] {select(eq(mul(x2, 0), 0), sub(x0, mul(s0, x1)), x0)} (b34, b33, b16)
          b4, b3, b2, b1 = all-gather [8] [P0] -> [r], [32, 8] [P0] -> [r], [32] [P0] -> [r], [16, 32] [P0] -> [r] (b21, b26, b31, b35)
        evaluate:
          b36 = contract 32x16x32 (b0, b1)
          b37 = map [32, 32] {relu(add(x0, x1))} (b36, b2)
          b38 = contract 32x32x8 (b37, b3)
          b39 = max [32, 8] {add(x0, x1)} (b38, b4)
          b40 = map [32, 8] {exp(sub(add(x1, x2), x0))} (b39, b38, b4)
          b41 = sum [32, 8] {x0} (b40)
          b42 = sum [32, 8] {select(eq.i32(x0, x1), sub(add(x3, x4), x2), 0)} (b5, b6, b39, b38, b4)
          b43 = sum [32] {sub(log(x0), x1)} (b41, b42)
          b44 = all-reduce [] [red] -> [r] (b43)
          b45 = map [] {div(x0, 64)} (b44)
    "#]].assert_eq(&program_text(&program));
}

#[test]
fn unsound_buckets_are_found() {
    let (builder, loss, _) = support::classifier(64, &[16, 32, 8], true);
    let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
    let found = search(&network, Mesh::new(2), &Search::Data.into());
    let sound = program("perceptron", &found.tiled);
    let is_joined =
        |it: &Step| sound.kernels[it.kernel].transfer().is_some_and(|it| it.collectives.len() > 1);
    let at = sound.train[0].iter().position(is_joined).unwrap();
    let check = |expected: &str, change: &dyn Fn(&mut Step, &mut Bucket)| {
        let mut program = sound.clone();
        let step = &mut program.train[0][at];
        let Kernel::Communicate(bucket) = &mut program.kernels.to_mut()[step.kernel] else {
            unreachable!("the step is a bucket")
        };
        change(step, bucket);
        let fault = verify_program(&program).unwrap_err();
        assert!(fault.contains(expected), "{fault}");
    };
    check(" collectives", &|step, _| step.inputs.truncate(2));
    check("of several kinds or axes", &|_, bucket| {
        bucket.collectives.to_mut()[1].kind = CollectiveKind::AllGather;
    });
    check("which it also uses", &|step, _| step.results[1] = step.results[0]);
    check("which it also uses", &|step, _| step.results[0] = step.inputs[2]);
}

/// Returns a network of the zoo as it is compiled for 8 ranks.
fn compiled(name: &str, cluster: Option<Cluster>) -> Compiled {
    let entry = ZOO.iter().find(|it| it.name == name).unwrap();
    let Model { builder, loss, .. } = (entry.model)();
    let options = Options {
        name: name.to_owned(),
        n_gpus: cluster.as_ref().map_or(8, Cluster::n_gpus),
        search: SearchRequest { cluster, ..SearchRequest::default() },
        precision: Precision::F32,
        optimizer: optimizer(entry.optimizer, &[]).unwrap(),
    };
    compile(builder, loss, &[], &options, &|| 0.0).unwrap()
}

fn n_transfers(program: &Program) -> [usize; 2] {
    let n_collectives = transfers(program, &program.train[0]).map(|it| it.collectives.len()).sum();
    [transfers(program, &program.train[0]).count(), n_collectives]
}

#[test]
fn large_networks_take_few_steps_for_their_collectives() {
    let dgx = || soybean_cluster::preset("dgx-h100");
    // Statistics of batch norms are needed at once, one after another.
    for (name, cluster, n_alone, most) in [
        ("gpt-12", dgx(), 446, 150),
        ("gpt-12", None, 446, 210),
        ("resnet50", dgx(), 590, 420),
        ("resnet50", None, 590, 440),
    ] {
        let [n_steps, n_collectives] = n_transfers(&compiled(name, cluster).program);
        assert_eq!(n_collectives, n_alone, "{name}");
        assert!(n_steps <= most, "{name}: {n_steps}");
    }
}

#[test]
fn the_latency_of_a_cluster_decides() {
    let preset = soybean_cluster::preset("dgx-h100").unwrap();
    let at = |latency_seconds: f64| {
        let mut cluster = preset.clone();
        cluster.levels.to_mut().iter_mut().for_each(|it| it.latency_seconds = latency_seconds);
        compiled("gpt-12", Some(cluster))
    };
    let plans = [0.0, 3e-6, 300e-6].map(at);
    let n_steps = plans.each_ref().map(|it| n_transfers(&it.program)[0]);
    assert_eq!(n_steps[0], 446);
    assert!(n_steps[1] <= 150 && n_steps[2] <= n_steps[1], "{n_steps:?}");
    // The predicted time has one latency for each bucket.
    let topology = Topology::new(&preset, 8).unwrap();
    let Compiled { program, report } = &plans[1];
    let seconds: f64 =
        transfers(program, &program.train[0]).map(|it| topology.bucket_seconds(it)).sum();
    let predicted = report.prediction.as_ref().unwrap().communication_seconds;
    assert!((seconds - predicted).abs() < 1e-12 * predicted.abs() + 1e-15);
}

#[test]
fn buckets_yield_to_a_memory_limit() {
    let mut n_larger = 0;
    for (name, found) in plans() {
        let (joined, alone) =
            (program(&name, &found.tiled), program_without_buckets(&name, &found.tiled, None));
        let limit = alone.tables.arena_bytes;
        let within = program_within(&name, &found.tiled, limit as u64);
        assert!(within.tables.arena_bytes <= limit, "{name}");
        let is_larger = joined.tables.arena_bytes > limit;
        assert_eq!(within, if is_larger { alone } else { joined }, "{name}");
        n_larger += usize::from(is_larger);
    }
    assert!(n_larger > 0, "buckets took no memory");
}
