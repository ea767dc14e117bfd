//! Steps are ordered so that a device can communicate while it computes.

use std::ops::Range;

use expect_test::expect;
use soybean_compiler::{
    Strategy, build_network, optimizer, program_text, program_without_buckets, round,
    tiling::search, verify_program,
};
use soybean_plan::{BufferId, Kernel, Mesh, Precision, Program, Step};
use soybean_zoo::{Model, Transformer, resnet20};

use crate::support;

const SMALL: Transformer =
    Transformer { batch: 8, tokens: 64, width: 64, n_heads: 4, n_blocks: 2, n_words: 96 };

/// The number of heavy steps by which updates follow collectives.
const N_BEHIND: usize = 2;

fn programs() -> Vec<(String, Program)> {
    let mlp = support::classifier(64, &[32, 64, 64, 64, 32], true);
    let mlp = Model { builder: mlp.0, loss: mlp.1, output: mlp.2 };
    let models = [("mlp", mlp), ("resnet", resnet20(8)), ("decoder", SMALL.decoder())];
    let mut programs = Vec::new();
    for (name, Model { builder, loss, .. }) in models {
        let network = build_network(builder, loss, &[], &optimizer("adam", &[]).unwrap()).unwrap();
        for precision in [Precision::F32, Precision::Bf16] {
            let network = round(network.clone(), precision);
            for strategy in [Strategy::Auto, Strategy::Data] {
                let found = search(&network, Mesh::new(4), &strategy.into());
                let program = program_without_buckets(name, &found.tiled);
                assert_eq!(verify_program(&program), Ok(()));
                assert_eq!(program.tables.train_bytes, found.tiled.bytes());
                programs.push((format!("{name} {precision} {strategy:?}"), program));
            }
        }
    }
    programs
}

fn is_heavy(program: &Program, step: &Step) -> bool {
    let kernel = &program.kernels[step.kernel];
    matches!(kernel, Kernel::Contract(_) | Kernel::Convolve(_) | Kernel::Attend(_))
}

fn is_transfer(program: &Program, step: &Step) -> bool {
    program.kernels[step.kernel].transfer().is_some()
}

fn n_heavy(program: &Program, steps: &[Step]) -> usize {
    steps.iter().filter(|it| is_heavy(program, it)).count()
}

/// Returns the positions of the collectives of a training step, each with that of the first step
/// that reads its result.
fn transfers(program: &Program) -> Vec<(usize, usize)> {
    let steps = &program.train;
    let first_reader = |at: usize| {
        let is_read = |it: &Step| it.inputs.contains(&steps[at].results[0]);
        steps[at + 1..].iter().position(is_read).map_or(steps.len(), |it| at + 1 + it)
    };
    let transfers = (0..steps.len()).filter(|&at| is_transfer(program, &steps[at]));
    transfers.map(|at| (at, first_reader(at))).collect()
}

fn stays(program: &Program, buffer: BufferId) -> bool {
    let tables = &program.tables;
    let parameters = tables.parameters.iter().map(|it| it.buffer);
    parameters.chain(tables.states.iter().map(|it| it.buffer)).any(|it| it == buffer)
}

#[test]
fn updates_stand_behind_heavy_steps_as_long_as_there_are_any() {
    let mut n_updates = 0;
    for (name, program) in programs() {
        let steps = &program.train;
        for (at, reader) in transfers(&program) {
            let Some(update) = steps.get(reader) else { continue };
            if !update.results.iter().all(|&it| stays(&program, it)) {
                continue;
            }
            let n_left = n_heavy(&program, &steps[at..]);
            let n_between = n_heavy(&program, &steps[at..reader]);
            assert!(n_between >= n_left.min(N_BEHIND), "{name}: step {at}, {reader}");
            n_updates += usize::from(n_left > 0);
        }
    }
    assert!(n_updates > 50, "only {n_updates} updates wait for a collective");
}

#[test]
fn weights_are_gathered_before_the_heavy_step_that_stands_before_their_reader() {
    let mut n_gathered = 0;
    for (name, program) in programs() {
        let steps = &program.train;
        for (at, reader) in transfers(&program) {
            // A weight, or one rounded: nothing that is computed in this step goes into it.
            let is_ready = |buffer: BufferId| {
                stays(&program, buffer)
                    || steps[..at].iter().any(|step| {
                        step.results == [buffer]
                            && step.inputs.iter().all(|&it| stays(&program, it))
                    })
            };
            let is_weight = is_ready(steps[at].inputs[0]) && reader < steps.len();
            if is_weight && is_heavy(&program, &steps[reader]) {
                let n_earlier = n_heavy(&program, &steps[..reader]);
                let n_between = n_heavy(&program, &steps[at..reader]);
                assert!(n_between >= n_earlier.min(1), "{name}: step {at}, {reader}");
                n_gathered += usize::from(n_earlier > 0);
            }
        }
    }
    assert!(n_gathered > 20, "only {n_gathered} weights are gathered");
}

#[test]
fn nothing_else_uses_the_memory_of_a_collective_that_may_be_under_way() {
    for (name, program) in programs() {
        let steps = &program.train;
        let buffers = &program.tables.buffers;
        let range = |it: BufferId| {
            let buffer = &buffers[it];
            buffer.offset..buffer.offset + buffer.n_elements * buffer.dtype.bytes()
        };
        for (at, reader) in transfers(&program) {
            let own = [steps[at].inputs[0], steps[at].results[0]].map(range);
            let is_free = |written: &Range<usize>| {
                own.iter().all(|it| written.end <= it.start || it.end <= written.start)
            };
            let mut n_heavy = 0;
            for step in &steps[at + 1..reader] {
                let mut written = step.results.iter().filter(|it| !stays(&program, **it));
                assert!(written.all(|&it| is_free(&range(it))), "{name}: {step:?} over {at}");
                n_heavy += usize::from(is_heavy(&program, step));
                if n_heavy == N_BEHIND {
                    break;
                }
            }
        }
    }
}

#[test]
fn one_device_keeps_the_order_of_the_graph() {
    let (builder, loss, _) = support::classifier(8, &[4, 8, 8], false);
    let update = optimizer("sgd", &[]).unwrap();
    let network = build_network(builder, loss, &[], &update).unwrap();
    let program = program_without_buckets(
        "alone",
        &search(&network, Mesh::new(1), &Strategy::Auto.into()).tiled,
    );
    expect![[r#"
        program alone on []
        train:
          b5 = contract 8x4x8 (b0, b1)
          b6 = map [8, 8] {relu(x0)} (b5)
          b7 = contract 8x8x8 (b6, b2)
          b8 = max [8, 8] {x0} (b7)
          b9 = map [8, 8] {exp(sub(x0, x1))} (b7, b8)
          b10 = sum [8, 8] {x0} (b9)
          b11 = sum [8, 8] {select(eq.i32(x0, x1), sub(x2, x3), 0)} (b3, b4, b7, b8)
          b12 = sum [8] {sub(log(x0), x1)} (b10, b11)
          b13 = map [] {div(x0, 8)} (b12)
          b14 = map [8, 8] {add(select(eq.i32(x0, x1), -0.125, 0), mul(div(0.125, x3), x2))} (b3, b4, b9, b10)
          b15 = contract 8x8x8 (b14, b2)
          b16 = contract 8x8x8 (b6, b14)
          b2 = map [8, 8] {select(eq(mul(x2, 0), 0), sub(x0, mul(s0, x1)), x0)} (b2, b16, b13)
          b17 = map [8, 8] {select(gt(x0, 0), x1, 0)} (b6, b15)
          b18 = contract 4x8x8 (b0, b17)
          b1 = map [4, 8] {select(eq(mul(x2, 0), 0), sub(x0, mul(s0, x1)), x0)} (b1, b18, b13)
        evaluate:
          b19 = contract 8x4x8 (b0, b1)
          b20 = map [8, 8] {relu(x0)} (b19)
          b21 = contract 8x8x8 (b20, b2)
          b22 = max [8, 8] {x0} (b21)
          b23 = map [8, 8] {exp(sub(x0, x1))} (b21, b22)
          b24 = sum [8, 8] {x0} (b23)
          b25 = sum [8, 8] {select(eq.i32(x0, x1), sub(x2, x3), 0)} (b3, b4, b21, b22)
          b26 = sum [8] {sub(log(x0), x1)} (b24, b25)
          b27 = map [] {div(x0, 8)} (b26)
    "#]].assert_eq(&program_text(&program));
}
