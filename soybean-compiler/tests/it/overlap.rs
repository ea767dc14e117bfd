//! Steps are ordered so that a device can communicate while it computes.

use std::ops::Range;

use expect_test::expect;
use soybean_compiler::{
    Compiled, Options, SearchRequest, Strategy, build_network, compile, optimizer, program,
    program_text, tiling::search, verify_program,
};
use soybean_plan::{
    BufferId, Cluster, Device, Executable, Kernel, Lane, Level, Measurements, Mesh, Precision,
    Program, Step, StepNeeds, Topology, lane, lane_spans,
};
use soybean_zoo::{Model, Transformer, resnet20};

use crate::support;

const SMALL: Transformer =
    Transformer { batch: 8, tokens: 64, width: 64, n_heads: 4, n_blocks: 2, n_words: 96 };

/// Four GPUs whose links are so slow that a step communicates for about as long as it computes.
fn cluster() -> Cluster {
    let device = Device {
        name: "slow".into(),
        f32_flops: 1e12,
        tf32_flops: 1e12,
        bf16_flops: 1e12,
        memory_bytes_per_second: 1e11,
        memory_bytes: 1 << 40,
        launch_seconds: 1e-6,
        efficiency: 1.0,
    };
    let level = Level {
        name: "gpus".into(),
        count: 4,
        link_bytes_per_second: 1e10,
        gpus_per_link: 1,
        latency_seconds: 1e-6,
    };
    Cluster {
        name: "slow".into(),
        levels: vec![level].into(),
        device,
        measurements: Measurements::default(),
    }
}

/// A program on the machine for which its steps were ordered.
struct Ordered {
    name: String,
    program: Executable,
    topology: Topology,
    /// The start and end of each step of a training step.
    spans: Vec<[f64; 2]>,
}

fn programs() -> Vec<Ordered> {
    let mlp = || {
        let (builder, loss, output) = support::classifier(64, &[32, 64, 64, 64, 32], true);
        Model::new(builder, loss, output)
    };
    let models: [(&str, &dyn Fn() -> Model); 3] =
        [("mlp", &mlp), ("resnet", &|| resnet20(8)), ("decoder", &|| SMALL.decoder())];
    let mut programs = Vec::new();
    for (name, model) in models {
        for precision in [Precision::F32, Precision::Bf16] {
            for strategy in [Strategy::Auto, Strategy::Data] {
                let Model { builder, loss, .. } = model();
                let options = Options {
                    name: name.to_owned(),
                    n_gpus: 4,
                    search: SearchRequest { cluster: Some(cluster()), ..strategy.into() },
                    precision,
                    optimizer: optimizer("adam", &[]).unwrap(),
                };
                let Compiled { program, report } =
                    compile(builder, loss, &[], &options, &|| 0.0).unwrap();
                assert_eq!(verify_program(&program), Ok(()));
                assert_eq!(program.tables.train_bytes(), report.search().tiled.bytes());
                let topology = report.search().topology.clone().unwrap();
                let durations = topology.durations(&program, &program.train[0]);
                let spans = lane_spans(&StepNeeds::of(&program.train[0]), &durations);
                let name = format!("{name} {precision} {strategy:?}");
                programs.push(Ordered { name, program, topology, spans });
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
    lane(&program.kernels[step.kernel]) == Lane::Communication
}

fn stays(program: &Program, buffer: BufferId) -> bool {
    let tables = &program.tables;
    let parameters = tables.parameters.iter().map(|it| it.buffer);
    parameters.chain(tables.states.iter().map(|it| it.buffer)).any(|it| it == buffer)
}

#[test]
fn updates_do_not_block_the_backward_pass() {
    let mut n_updates = 0;
    for Ordered { name, program, spans, .. } in programs() {
        let steps = &program.train[0];
        let needs = StepNeeds::of(steps);
        let is_update = |at: usize| steps[at].results.iter().all(|&it| stays(&program, it));
        for at in (0..steps.len()).filter(|&at| is_update(at)) {
            let heavy = (at..steps.len()).find(|&it| is_heavy(&program, &steps[it]));
            let Some(heavy) = heavy else { break };
            // The lane was free when the update began, or the next product could not begin sooner.
            let before = (0..at).rfind(|&it| !is_transfer(&program, &steps[it])).unwrap();
            let ready = needs[heavy].needs.iter().map(|&it| spans[it][1]).fold(0.0, f64::max);
            let start = spans[at][0];
            assert!(start <= spans[before][1].max(ready), "{name}: {:?} blocks", steps[heavy]);
            n_updates += 1;
        }
    }
    assert!(n_updates > 50, "only {n_updates} updates run before the backward pass ends");
}

#[test]
fn weights_are_gathered_before_their_readers_are_due() {
    let (mut n_gathered, mut n_hidden) = (0, 0);
    for Ordered { program, spans, .. } in programs() {
        let steps = &program.train[0];
        // A weight, or one rounded: nothing that is computed in this step goes into it.
        let is_ready = |at: usize, buffer: BufferId| {
            let makes = |it: &&Step| it.results == [buffer];
            let from_kept = |it: &Step| it.inputs.iter().all(|&it| stays(&program, it));
            stays(&program, buffer) || steps[..at].iter().find(makes).is_some_and(from_kept)
        };
        for at in (0..steps.len()).filter(|&at| is_transfer(&program, &steps[at])) {
            let reads = |it: &Step| it.inputs.iter().any(|it| steps[at].results.contains(it));
            let Some(reader) = steps[at..].iter().position(reads).map(|it| at + it) else {
                continue;
            };
            let n_heavy = steps[..reader].iter().filter(|it| is_heavy(&program, it)).count();
            if n_heavy > 1
                && is_heavy(&program, &steps[reader])
                && is_ready(at, steps[at].inputs[0])
            {
                let before = steps[..reader].iter().rposition(|it| is_heavy(&program, it)).unwrap();
                n_gathered += 1;
                n_hidden += usize::from(spans[at][0] <= spans[before][0]);
            }
        }
    }
    // The others wait for collectives that are more urgent.
    assert!(n_gathered > 10 && n_hidden * 10 > n_gathered * 9, "{n_hidden} of {n_gathered}");
}

#[test]
fn overlap_is_faster_than_one_lane() {
    for Ordered { name, program, topology, spans } in programs() {
        let serial = topology.serial_seconds(&program, &program.train[0]);
        let overlapped = spans.iter().map(|it| it[1]).fold(0.0, f64::max);
        let seconds = topology.overlapped_seconds(&program, &program.train[0]);
        assert!((overlapped - seconds).abs() < 1e-12, "{name}");
        let compute: f64 = program.train[0]
            .iter()
            .filter(|it| !is_transfer(&program, it))
            .map(|it| topology.step_seconds(&program, it))
            .sum();
        let hidden = (serial - overlapped) / (serial - compute).min(compute);
        assert!(hidden > 0.4, "{name}: {hidden} of what could be hidden");
    }
}

#[test]
fn nothing_else_uses_the_memory_of_a_collective_that_is_under_way() {
    for Ordered { name, program, spans, .. } in programs() {
        let steps = &program.train[0];
        let buffers = &program.tables.buffers;
        let range = |it: BufferId| {
            let buffer = &buffers[it];
            buffer.offset..buffer.offset + buffer.n_elements * buffer.dtype.bytes()
        };
        for at in (0..steps.len()).filter(|&at| is_transfer(&program, &steps[at])) {
            let own: Vec<Range<usize>> =
                steps[at].inputs.iter().chain(&steps[at].results).copied().map(range).collect();
            let is_free = |written: &Range<usize>| {
                own.iter().all(|it| written.end <= it.start || it.end <= written.start)
            };
            let meanwhile = (at + 1..steps.len()).filter(|&it| spans[it][0] < spans[at][1]);
            for other in meanwhile {
                let step = &steps[other];
                let mut written = step.results.iter().filter(|it| !stays(&program, **it));
                assert!(written.all(|&it| is_free(&range(it))), "{name}: {step:?} over {at}");
            }
        }
    }
}

#[test]
fn one_device_keeps_the_order_of_the_graph() {
    let (builder, loss, _) = support::classifier(8, &[4, 8, 8], false);
    let update = optimizer("sgd", &[]).unwrap();
    let network = build_network(builder, loss, &[], &update).unwrap();
    let program = program("alone", &search(&network, Mesh::new(1), &Strategy::Auto.into()).tiled);
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
