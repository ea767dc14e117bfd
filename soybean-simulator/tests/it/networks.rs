//! Checks properties of the simulation of every network: bytes are those of the plan, and no step
//! is faster than its parts.

use crate::support::{cluster, level};
use proptest::prelude::*;
use soybean_compiler::{
    Argument, Builder, Compiled, Optimizer, Options, SearchRequest, Strategy as Search, compile,
    optimizer,
};
use soybean_plan::{Cluster, DType, Init, Kernel, Mode, Precision, Topology};
use soybean_simulator::{Lanes, Phase, Settings, Simulation, Transport, simulate};

/// Returns a classifier with layers of these widths and ReLU.
fn perceptron(batch: usize, widths: &[usize], n_gpus: usize, strategy: Search) -> Compiled {
    accumulating_perceptron(batch, widths, n_gpus, strategy, 1)
}

/// Returns the same with so many steps for each update.
fn accumulating_perceptron(
    batch: usize,
    widths: &[usize],
    n_gpus: usize,
    strategy: Search,
    accumulate: u64,
) -> Compiled {
    let mut builder = Builder::new();
    let mut here = builder.input("x", DType::F32, &[batch, widths[0]]);
    for (number, pair) in widths.windows(2).enumerate() {
        let init = Init::Constant(0.1);
        let w = builder.parameter(&format!("w{number}"), pair, init);
        let product = [here, w].map(Argument::Tensor);
        let Ok(Argument::Tensor(value)) = builder.call("matmul", &product) else { unreachable!() };
        let Ok(Argument::Tensor(value)) = builder.call("relu", &[Argument::Tensor(value)]) else {
            unreachable!()
        };
        here = value;
    }
    let labels = builder.input("y", DType::I32, &[batch]);
    let logits = [here, labels].map(Argument::Tensor);
    let Ok(Argument::Tensor(loss)) = builder.call("cross_entropy", &logits) else { unreachable!() };
    let options = Options {
        name: "perceptron".to_owned(),
        n_gpus,
        search: SearchRequest { strategy, ..SearchRequest::default() },
        precision: Precision::F32,
        optimizer: Optimizer { accumulate, ..optimizer("sgd", &[]).unwrap() },
    };
    compile(builder, loss, &[], &options, &|| 0.0).unwrap()
}

/// Returns eight GPUs in two groups behind shared links, with negligible latencies.
fn eight() -> Cluster {
    cluster(&[level(2, 1e4, 4, 1e-6), level(4, 1e4, 1, 1e-6)])
}

fn run(compiled: &Compiled, cluster: &Cluster, lanes: Lanes) -> Simulation {
    run_by(compiled, cluster, lanes, Transport::Direct)
}

fn run_by(
    compiled: &Compiled,
    cluster: &Cluster,
    lanes: Lanes,
    transport: Transport,
) -> Simulation {
    let settings = Settings { lanes, transport, ..Settings::default() };
    simulate(&compiled.program, cluster, &settings).unwrap()
}

/// Returns the bytes of each level of a cluster as the report counts them by axis.
fn planned(compiled: &Compiled, topology: &Topology) -> Vec<u64> {
    let mut bytes = vec![0; topology.n_levels()];
    for (axis, moved) in compiled.report.bytes_per_axis.iter().enumerate() {
        bytes[topology.level(axis)] += moved;
    }
    bytes
}

#[test]
fn links_carry_what_the_plan_says() {
    for strategy in [Search::Data, Search::Model, Search::Auto] {
        for n_gpus in [2, 4, 8] {
            // All tensors have equal parts of whole cache lines on eight ranks.
            let compiled = perceptron(512, &[1024, 1024, 2048, 128], n_gpus, strategy);
            let topology = Topology::new(&eight(), n_gpus).unwrap();
            let simulation = run(&compiled, &eight(), Lanes::Two);
            // The loss is one number, which cannot be divided evenly.
            let moved: u64 = simulation.bytes_per_level.iter().sum();
            assert_eq!(moved, compiled.report.bytes_total, "{strategy:?} {n_gpus}");
            for (found, planned) in
                simulation.bytes_per_level.iter().zip(planned(&compiled, &topology))
            {
                assert!(found.abs_diff(planned) < 256, "{strategy:?} {n_gpus}: {found} {planned}");
            }
            let out_of_gpus = simulation.links.iter().filter(|it| it.name.contains("from"));
            let carried: u64 = out_of_gpus.map(|it| it.bytes).sum();
            // Transfers to the other group pass the GPU's own link too.
            let [across, within] = simulation.bytes_per_level[..] else { unreachable!() };
            let is_shared = n_gpus > 4;
            assert_eq!(carried, if is_shared { 2 * across + within } else { across + within });
        }
    }
}

#[test]
fn a_trace_has_every_task() {
    let simulation = run(&perceptron(64, &[64, 64], 4, Search::Data), &eight(), Lanes::Two);
    let trace: serde_json::Value = serde_json::from_str(&simulation.chrome_trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let spans: Vec<_> = events.iter().filter(|it| it["ph"] == "X").collect();
    assert_eq!(spans.len(), simulation.spans.iter().map(Vec::len).sum::<usize>());
    let end = |it: &&serde_json::Value| it["ts"].as_f64().unwrap() + it["dur"].as_f64().unwrap();
    let last = spans.iter().map(end).fold(0.0, f64::max);
    // Times are written in thousandths of a microsecond.
    assert!((last - simulation.seconds * 1e6).abs() < 2e-3, "{last}");
    assert!(spans.iter().any(|it| it["cat"] == "communication"));
}

#[test]
fn an_evaluation_is_a_part_of_a_step() {
    let compiled = perceptron(64, &[64, 128, 64], 4, Search::Auto);
    let settings = Settings { phase: Phase::Evaluate(0), ..Settings::default() };
    let evaluation = simulate(&compiled.program, &eight(), &settings).unwrap();
    assert!(evaluation.seconds < run(&compiled, &eight(), Lanes::Two).seconds);
    assert_eq!(
        evaluation.bytes_per_level.iter().sum::<u64>(),
        compiled.program.tables.entries[0].bytes
    );
}

/// In data parallelism, a step that only accumulates gradients moves the loss alone.
#[test]
fn an_accumulating_step_is_faster_than_one_that_updates() {
    let compiled = accumulating_perceptron(64, &[64, 128, 64], 4, Search::Data, 8);
    let of = |phase| {
        let settings = Settings { phase, ..Settings::default() };
        simulate(&compiled.program, &eight(), &settings).unwrap()
    };
    let (accumulating, updating) = (of(Phase::Accumulate), of(Phase::Measured));
    assert!(accumulating.seconds < updating.seconds);
    let bytes = |it: &Simulation| it.bytes_per_level.iter().sum::<u64>();
    let tables = &compiled.program.tables;
    assert_eq!(
        (bytes(&accumulating), bytes(&updating)),
        (tables.accumulate_bytes, tables.train_bytes())
    );
}

#[test]
fn of_a_program_that_is_not_trained_a_prediction_is_simulated() {
    let mut builder = Builder::in_mode(Mode::Inference);
    let x = builder.input("x", DType::F32, &[64, 128]);
    let w = builder.parameter("w", &[128, 64], Init::Constant(0.0));
    let product = builder.call("matmul", &[x, w].map(Argument::Tensor)).unwrap();
    let Argument::Tensor(output) = product else { unreachable!("a product is a tensor") };
    let options = Options {
        name: "net".to_owned(),
        n_gpus: 4,
        search: Search::Model.into(),
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    let compiled = compile(builder, None, &[("y".to_owned(), output)], &options, &|| 0.0).unwrap();
    let simulation = simulate(&compiled.program, &eight(), &Settings::default()).unwrap();
    assert!(simulation.seconds > 0.0);
    let evaluation = Settings { phase: Phase::Evaluate(0), ..Settings::default() };
    assert_eq!(simulation, simulate(&compiled.program, &eight(), &evaluation).unwrap());
}

/// Checks the properties of every simulation.
fn check(compiled: &Compiled, cluster: &Cluster, transport: Transport) {
    let simulation = run_by(compiled, cluster, Lanes::Two, transport);
    assert_eq!(simulation, run_by(compiled, cluster, Lanes::Two, transport));
    assert_eq!(simulation.bytes_per_level.iter().sum::<u64>(), compiled.report.bytes_total);
    let Compiled { program, .. } = compiled;
    let topology = Topology::new(cluster, program.tables.mesh.n_ranks()).unwrap();
    let is_collective = |kernel| matches!(program.kernels[kernel], Kernel::Communicate(_));
    let kernels = program.train[0].iter().filter(|it| !is_collective(it.kernel));
    let compute: f64 = kernels.map(|it| topology.step_seconds(program, it)).sum();
    // Sums of a few hundred times round by far less than this.
    let most = simulation.seconds * (1.0 + 1e-9);
    assert!(compute <= most);
    for link in &simulation.links {
        let least = link.bytes as f64 / link.bytes_per_second;
        assert!(least <= link.busy_seconds * (1.0 + 1e-9) && link.busy_seconds <= most);
    }
    for (rank, spans) in simulation.ranks.iter().zip(&simulation.spans) {
        let sum = rank.compute_seconds + rank.exposed_seconds;
        assert!(sum <= most);
        assert!(spans.iter().all(|it| it.start <= it.end));
    }
    // The time in one lane is at most the work of a rank and its waiting for others.
    let serial = run_by(compiled, cluster, Lanes::One, transport);
    assert!(compute + serial.ranks[0].communication_seconds <= serial.seconds * (1.0 + 1e-9));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn nothing_is_faster_than_its_parts(
        batch in 1_usize..5,
        widths in prop::collection::vec(1_usize..6, 2..5),
        n_gpus in prop::sample::select(vec![2_usize, 4, 8]),
        strategy in prop::sample::select(vec![Search::Data, Search::Model, Search::Auto]),
        bandwidths in (1e2..1e6_f64, 1e2..1e6_f64),
        gpus_per_link in prop::sample::select(vec![1_usize, 2, 4]),
        latency in 0.0..1e-2_f64,
        transport in prop::sample::select(vec![Transport::Direct, Transport::Rings]),
    ) {
        let widths: Vec<usize> = widths.iter().map(|it| it * 16).collect();
        let compiled = perceptron(batch * 8, &widths, n_gpus, strategy);
        let levels = [level(2, bandwidths.0, gpus_per_link, latency), level(4, bandwidths.1, 1, latency)];
        check(&compiled, &cluster(&levels), transport);
    }
}
