//! The objective `time` as time passes: plans are compared with collectives beside kernels.

use soybean_compiler::{
    Objective, Optimizer, Options, Padding, Report, SearchRequest, Strategy, compile, optimizer,
};
use soybean_plan::{Cluster, Device, Level, Measurements, Precision};
use soybean_zoo::{Model, Transformer, ZOO, alexnet, perceptron};

const SMALL: Transformer =
    Transformer { tokens: 64, width: 128, n_heads: 4, n_blocks: 2, ..soybean_zoo::GPT };

/// Returns eight GPUs in two groups.
fn cluster(between_groups: f64, between_gpus: f64) -> Cluster {
    let level = |name: &'static str, count, link_bytes_per_second| Level {
        name: name.into(),
        count,
        link_bytes_per_second,
        gpus_per_link: 1,
        latency_seconds: 5e-6,
    };
    let device = Device {
        name: "slow".into(),
        f32_flops: 4e12,
        tf32_flops: 4e12,
        bf16_flops: 4e12,
        memory_bytes_per_second: 2e11,
        memory_bytes: 1 << 40,
        launch_seconds: 3e-6,
        efficiency: 0.7,
    };
    let levels = vec![level("groups", 2, between_groups), level("gpus", 4, between_gpus)].into();
    Cluster { name: "test".into(), levels, device, measurements: Measurements::default() }
}

fn report(model: Model, n_gpus: usize, search: SearchRequest, optimizer: Optimizer) -> Report {
    let options =
        Options { name: "model".to_owned(), n_gpus, search, precision: Precision::F32, optimizer };
    compile(model.builder, model.loss, &[], &options, &|| 0.0).unwrap().report
}

/// A model with its name.
type Named = (&'static str, fn() -> Model);

#[test]
fn no_strategy_is_faster_by_either_objective() {
    let models: [Named; 3] = [
        ("perceptron", || perceptron(512, &[256, 512, 512, 64])),
        ("alexnet", || alexnet(64)),
        ("decoder", || SMALL.decoder()),
    ];
    let mut n_faster = 0;
    for (name, model) in models {
        for cluster in [cluster(1e9, 1e10), cluster(1e10, 1e10)] {
            let of = |strategy, objective| {
                let cluster = Some(cluster.clone());
                let search = SearchRequest { strategy, cluster, objective, ..Default::default() };
                report(model(), 8, search, optimizer("adam", &[]).unwrap())
            };
            let fastest = of(Strategy::Auto, Objective::Time);
            let seconds = fastest.prediction.as_ref().unwrap().seconds;
            let times = fastest.search().times.unwrap();
            assert!((times.plan - seconds).abs() < 1e-12, "{name}: {times:?}, {seconds}");
            assert!(times.lower_bound > 0.0 && times.lower_bound <= seconds, "{name}: {times:?}");
            for (strategy_name, strategy) in Strategy::NAMES {
                let other = of(strategy, Objective::Bytes).prediction.unwrap().seconds;
                assert!(seconds <= other, "{name}: {seconds}, {strategy_name} {other}");
                assert!(times.lower_bound <= other, "{name}: {times:?}, {strategy_name} {other}");
                n_faster += usize::from(seconds < 0.99 * other);
            }
        }
    }
    assert!(n_faster > 12, "only {n_faster} other plans are slower");
}

// Guards: plans in which equal weights have another tiling are timed. Without them, the step of
// this network takes 1.19 times as long as its kernels.
#[test]
fn other_tilings_of_equal_weights_are_timed() {
    let entry = ZOO.iter().find(|it| it.name == "encoder").unwrap();
    let mut options = entry.options(8);
    options.search.objective = Objective::Time;
    let model = (entry.model)();
    let compiled = compile(model.builder, model.loss, &[], &options, &|| 0.0).unwrap();
    let times = compiled.report.search().times.unwrap();
    assert!(times.plan < 1.12 * times.lower_bound, "{times:?}");
}

/// The gradients of a large batch are small beside the work, and data parallelism hides them.
#[test]
fn what_kernels_hide_costs_nothing() {
    let model = || perceptron(1 << 16, &[256, 256, 256, 256, 16]);
    let of = |objective| {
        let cluster = Some(cluster(4e9, 4e9));
        let search = SearchRequest { cluster, objective, ..SearchRequest::default() };
        report(model(), 8, search, Optimizer::default())
    };
    let (by_time, by_bytes) = (of(Objective::Time), of(Objective::Bytes));
    let times = by_time.search().times.unwrap();
    assert!(times.plan < 1.05 * times.lower_bound, "{times:?}");
    let prediction = by_time.prediction.as_ref().unwrap();
    assert!(prediction.seconds < prediction.serial_seconds);
    assert!(prediction.seconds <= by_bytes.prediction.unwrap().seconds);
}

#[test]
fn a_cluster_is_assumed_if_none_is_named() {
    for (n_gpus, preset) in [(8, "dgx-h100"), (12, "2x8-h100-ib")] {
        let search = SearchRequest { objective: Objective::Time, ..SearchRequest::default() };
        let model = Transformer { batch: 24, n_heads: 12, width: 768, ..SMALL }.decoder();
        let report = report(model, n_gpus, search, Optimizer::default());
        assert!(report.text().contains("predicted for H100 (assumed)"), "{}", report.text());
        let found = report.search();
        let topology = found.topology.as_ref().unwrap();
        assert_eq!(topology.mesh(), found.tiled.mesh);
        let named = soybean_cluster::preset(preset).unwrap();
        let assumed = topology.cluster();
        assert_eq!((&assumed.levels, &assumed.device), (&named.levels, &named.device));
    }
}

/// Paddings are compared by the sum of all times, and collectives beside kernels change the order.
#[test]
fn no_padding_is_slower_than_none() {
    let of = |(width, n_heads, n_gpus): (usize, usize, usize), padding| {
        let search = SearchRequest {
            objective: Objective::Time,
            cluster: soybean_cluster::preset("dgx-h100"),
            padding,
            ..SearchRequest::default()
        };
        let model = Transformer { batch: 16, n_heads, width, ..SMALL }.decoder();
        report(model, n_gpus, search, optimizer("adamw", &[]).unwrap()).prediction.unwrap().seconds
    };
    for case in [(96, 4, 8), (96, 4, 6), (60, 6, 8), (60, 6, 3), (112, 7, 4)] {
        let (padded, unpadded) = (of(case, Padding::Auto), of(case, Padding::Off));
        assert!(padded <= unpadded, "{case:?}: {padded} with paddings, {unpadded} without");
    }
}
