//! Lowering: programs are sound on every mesh, and move the bytes that the plan counts.

use expect_test::expect;
use soybean_compiler::{
    Argument, Compiled, Optimizer, Options, Padding, SearchRequest, Strategy, build_network,
    compile, optimizer, program, program_text, tiling::search, verify_program,
};
use soybean_plan::{Mesh, NonFinite, Precision};

use crate::support;

fn optimizers() -> Vec<Optimizer> {
    let setting = |name: &str, value: f64| (name.to_owned(), Argument::Float(value));
    let adam = optimizer("adam", &[setting("weight_decay", 0.01)]).unwrap();
    let nesterov = ("nesterov".to_owned(), Argument::Boolean(true));
    let settings = [setting("momentum", 0.9), nesterov, setting("weight_decay", 1e-4)];
    let momentum = optimizer("sgd", &settings).unwrap();
    let with_everything = |optimizer: Optimizer| Optimizer {
        clip_norm: Some(1.0),
        accumulate: 2,
        ema: Some(0.9),
        non_finite: NonFinite::Scale,
        ..optimizer
    };
    let masked = Optimizer { no_decay: vec!["b*".to_owned()], ..with_everything(adam.clone()) };
    let mut optimizers = vec![Optimizer::default(), momentum, adam, masked];
    for name in ["rmsprop", "adagrad", "lion", "adafactor"] {
        let defaults = optimizer(name, &[]).unwrap();
        optimizers.extend([with_everything(defaults.clone()), defaults]);
    }
    optimizers
}

#[test]
fn programs_are_sound_and_move_the_bytes_of_their_plans() {
    for optimizer in optimizers() {
        for n_ranks in [1, 2, 3, 4, 6, 8, 12] {
            for (_, strategy) in Strategy::NAMES {
                let (builder, loss, logits) = support::classifier(24, &[10, 36, 20, 12], true);
                let outputs = [("logits".to_owned(), logits)];
                let network = build_network(builder, loss, &outputs, &optimizer).unwrap();
                let found = search(&network, Mesh::new(n_ranks), &strategy.into());
                let program = program("mlp", &found.tiled);
                verify_program(&program).unwrap_or_else(|error| {
                    panic!("{n_ranks} {strategy:?}: {error}\n{}", program_text(&program))
                });
                assert_eq!(
                    program.tables.measured_bytes(),
                    found.tiled.bytes(),
                    "{n_ranks} {strategy:?}"
                );
            }
        }
    }
}

#[test]
fn buffers_that_overlap_while_they_are_in_use_are_found() {
    let (builder, loss, _) = support::classifier(24, &[10, 36, 12], true);
    let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
    let found = search(&network, Mesh::new(4), &Strategy::Auto.into());
    let sound = program("mlp", &found.tiled);
    let n_buffers = sound.tables.buffers.len();
    let n_found = (0..n_buffers).filter(|&moved| {
        let mut program = sound.clone();
        let to = sound.tables.buffers[(moved + 1) % n_buffers].offset;
        program.tables.buffers.to_mut()[moved].offset = to;
        verify_program(&program).is_err()
    });
    // A few buffers may share memory with the next one, because their lifetimes do not overlap.
    assert!(n_found.count() > n_buffers / 2, "of {n_buffers} buffers");
}

/// Returns the collectives of a training step in which each rank has one number.
fn n_numbers_that_go_round(optimizer: &Optimizer, n_ranks: usize, strategy: Strategy) -> usize {
    // Some of the 82 gradients can be split along all axes, some along a few, some along none.
    let widths = [&[10, 36, 20, 12, 7][..], &[16; 36], &[10]].concat();
    let (builder, loss, _) = support::classifier(24, &widths, true);
    let network = build_network(builder, loss, &[], optimizer).unwrap();
    let found = search(&network, Mesh::new(n_ranks), &strategy.into());
    let program = program("mlp", &found.tiled);
    verify_program(&program).unwrap();
    let buckets = program.train[0].iter().filter_map(|it| program.kernels[it.kernel].transfer());
    buckets.flat_map(|it| it.collectives.iter()).filter(|it| it.shape.is_empty()).count()
}

#[test]
fn one_number_goes_round_for_the_norm_of_all_gradients() {
    let plain = Optimizer::default();
    let clipped = Optimizer { clip_norm: Some(1.0), ..plain.clone() };
    let skipping = Optimizer { non_finite: NonFinite::Skip, ..plain.clone() };
    for n_ranks in [2, 4, 6, 8] {
        for (_, strategy) in Strategy::NAMES {
            let of_loss = n_numbers_that_go_round(&plain, n_ranks, strategy);
            for optimizer in [&clipped, &skipping] {
                let found = n_numbers_that_go_round(optimizer, n_ranks, strategy);
                assert_eq!(found, of_loss + 1, "{n_ranks} ranks, {strategy:?}");
            }
        }
    }
}

fn compiled(n_gpus: usize, strategy: Strategy, precision: Precision) -> Compiled {
    let (builder, loss, logits) = support::classifier(8, &[4, 16, 8], false);
    let outputs = [("logits".to_owned(), logits)];
    let options = Options {
        name: "tiny".to_owned(),
        n_gpus,
        search: strategy.into(),
        precision,
        optimizer: Optimizer::default(),
    };
    compile(builder, loss, &outputs, &options, &|| 0.0).unwrap()
}

#[test]
fn text_form_of_a_program() {
    let compiled = compiled(2, Strategy::Auto, Precision::F32);
    expect![[r#"
        program tiny on [2]
        train:
          b5 = contract 8x4x8 (b0, b1)
          b6 = map [8, 8] {relu(x0)} (b5)
          b7 = contract 8x8x8 (b6, b2)
          b8 = reduce-scatter [8, 8] [red] -> [P0] (b7)
          b9 = max [4, 8] {x0} (b8)
          b10 = map [4, 8] {exp(sub(x0, x1))} (b8, b9)
          b11 = sum [4, 8] {x0} (b10)
          b16 = map [4, 8] {add(select(eq.i32(x0, x1), -0.125, 0), mul(div(0.125, x3), x2))} (b3, b4, b10, b11)
          b17 = all-gather [8, 8] [P0] -> [r] (b16)
          b18 = contract 8x8x8 (b17, b2)
          b19 = contract 8x8x8 (b6, b17)
          b12 = sum [4, 8] {select(eq.i32(x0, x1), sub(x2, x3), 0)} (b3, b4, b8, b9)
          b13 = sum [4] {sub(log(x0), x1)} (b11, b12)
          b14 = all-reduce [] [red] -> [r] (b13)
          b20 = map [8, 8] {select(gt(x0, 0), x1, 0)} (b6, b18)
          b21 = contract 4x8x8 (b0, b20)
          b15 = map [] {div(x0, 8)} (b14)
          b2 = map [8, 8] {select(eq(mul(x2, 0), 0), sub(x0, mul(s0, x1)), x0)} (b2, b19, b15)
          b1 = map [4, 8] {select(eq(mul(x2, 0), 0), sub(x0, mul(s0, x1)), x0)} (b1, b21, b15)
        evaluate:
          b22 = contract 8x4x8 (b0, b1)
          b23 = map [8, 8] {relu(x0)} (b22)
          b24 = contract 8x8x8 (b23, b2)
          b25 = reduce-scatter [8, 8] [red] -> [P0] (b24)
          b26 = max [4, 8] {x0} (b25)
          b27 = map [4, 8] {exp(sub(x0, x1))} (b25, b26)
          b28 = sum [4, 8] {x0} (b27)
          b29 = sum [4, 8] {select(eq.i32(x0, x1), sub(x2, x3), 0)} (b3, b4, b25, b26)
          b30 = sum [4] {sub(log(x0), x1)} (b28, b29)
          b31 = all-reduce [] [red] -> [r] (b30)
          b32 = map [] {div(x0, 8)} (b31)
    "#]].assert_eq(&program_text(&compiled.program));
}

#[test]
fn text_form_of_a_tiling() {
    expect![[r#"
        mesh [2]
        v0: f32[8, 4] = input "x" [r]
        v1: f32[4, 16] = param "w0" [P1]
        v2: f32[8, 16] = contract ik,kj->ij (v0, v1) [P1] by [j]
        v3: f32[8, 16] = map {relu(x0)} ij->ij (v2) [P1] by [j]
        v4: f32[16, 8] = param "w1" [P0]
        v5: f32[8, 8] = contract ik,kj->ij (v3, v4) [P0] by [k]; v5 [red] -> [P0]: 256 bytes
        v6: i32[8] = input "y" [P0]
        v7: f32[8] = max {x0} ij->i (v5) [P0] by [i]
        v8: f32[8, 8] = map {exp(sub(x0, x1))} ij,i->ij (v5, v7) [P0] by [i]
        v9: f32[8] = sum {x0} ij->i (v8) [P0] by [i]
        v10: i32[8] = iota ->_ () [r] by [-]
        v11: f32[8] = sum {select(eq.i32(x0, x1), sub(x2, x3), 0)} i,j,ij,i->i (v6, v10, v5, v7) [P0] by [i]
        v12: f32[] = sum {sub(log(x0), x1)} i,i-> (v9, v11) [r] by [i]; v12 [red] -> [r]: 8 bytes
        v13: f32[] = map {div(x0, 8)} -> (v12) [r] by [-]
        v14: f32[8, 8] = map {add(select(eq.i32(x0, x1), -0.125, 0), mul(div(0.125, x3), x2))} i,j,ij,i->ij (v6, v10, v8, v9) [r] by [i]; v14 [P0] -> [r]: 256 bytes
        v15: f32[8, 16] = contract ij,kj->ik (v14, v4) [P1] by [k]
        v16: f32[16, 8] = contract ik,ij->kj (v3, v14) [P0] by [k]
        v17: f32[8, 16] = map {select(gt(x0, 0), x1, 0)} ij,ij->ij (v3, v15) [P1] by [j]
        v18: f32[4, 16] = contract ik,ij->kj (v0, v17) [P1] by [j]
        v19: f32[4, 16] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v1, v18) [P1] by [j]
        v20: f32[16, 8] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v4, v16) [P0] by [i]
    "#]].assert_eq(&compiled(2, Strategy::Auto, Precision::F32).report.search().tiled.to_string());
}

#[test]
fn text_report() {
    expect![[r#"
        plan of `tiny` for 4 GPUs, mesh [2, 2], strategy data, precision f32

          tensor  shape       tiling
          x       f32[8, 4]   [P0 P0]
          w0      f32[4, 16]  [r r]
          w1      f32[16, 8]  [r r]
          logits  f32[8, 8]   [P0 P0]
          y       i32[8]      [P0 P0]
          loss    f32[]       [r r]

          layer               forward  backward  weights and states
          (the model itself)  data 4   data 4    replicated 4

          bytes   share   tensor                            collective      for
          1.5 kB  33.2 %  w1.grad [red red] -> [P0 P0]      reduce-scatter  matmul, backward
          1.5 kB  33.2 %  w1' [P0 P0] -> [r r]              all-gather      update
          768 B   16.6 %  w0.grad [red red] -> [P0 P0]      reduce-scatter  matmul, backward
          768 B   16.6 %  w0' [P0 P0] -> [r r]              all-gather      update
          24 B    0.5 %   cross_entropy [red red] -> [r r]  all-reduce      cross_entropy, forward

          bytes moved in one training step      4.6 kB
          with strategy data                    4.6 kB  1.00 x
          with strategy model                   2.6 kB  0.57 x
          with strategy recursive               1.6 kB  0.34 x
          fed to GPUs in one training step       160 B  40 B to each GPU
          work over that of one device            1.00
          memory of each GPU                    3.6 kB
            parameters                           768 B
            inputs                               768 B
            activations                          256 B
            gradients                            512 B
            collectives                         1.3 kB
          search                                0.0 ms
    "#]]
    .assert_eq(&compiled(4, Strategy::Data, Precision::F32).report.text());
}

#[test]
fn a_number_of_gpus_that_nothing_can_be_split_over_is_a_fault() {
    let (mut builder, logits) = support::mlp(5, &[3, 7], false);
    let loss = support::call(&mut builder, "mean", &[Argument::Tensor(logits), Argument::All]);
    let options = Options {
        name: "odd".to_owned(),
        n_gpus: 4,
        search: SearchRequest { padding: Padding::Off, ..SearchRequest::default() },
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    let faults = compile(builder, loss, &[], &options, &|| 0.0).unwrap_err();
    expect![[r#"
        [
            ModelDiagnostic {
                at: Gpus,
                message: "no operator of this model can be split over 4 GPUs; the most is 1",
                help: Some(
                    "use `gpus = 1`, or make the batch or a layer's width a multiple of 4",
                ),
            },
        ]"#]]
    .assert_eq(&format!("{faults:#?}"));
}
