//! Tests of cluster files: the clusters that are read, and the messages of errors.

use expect_test::{Expect, expect};
use soybean_cluster::{preset, preset_names, read, write};
use soybean_plan::{Cluster, CollectiveKind, MeasuredCollective, MeasuredKernel, Measurements};

const GOOD: &str = r#"# a machine
[gpu]
name = "abacus"
f32 = "1.5 TFLOP/s"
tf32 = "3 TFLOP/s"
bf16 = "6TFLOP/s"
memory = "2 GiB"
memory_bandwidth = "100 GB/s"
launch = "500 ns"
efficiency = 1

[[level]]
name = "nodes"
count = 3
bandwidth = "10 MB/s"
latency = "1.5 ms"
gpus_per_link = 2

[[level]]
name = "gpus"
count = 4
bandwidth = "1 GB/s"
latency = "0 s"
"#;

#[test]
fn files_become_clusters() {
    let cluster = read("mine", "mine.toml", GOOD).unwrap();
    assert_eq!((cluster.n_gpus(), &*cluster.name), (12, "mine"));
    expect![[r#"Cluster { name: "mine", levels: [Level { name: "nodes", count: 3, link_bytes_per_second: 10000000.0, gpus_per_link: 2, latency_seconds: 0.0015 }, Level { name: "gpus", count: 4, link_bytes_per_second: 1000000000.0, gpus_per_link: 1, latency_seconds: 0.0 }], device: Device { name: "abacus", f32_flops: 1500000000000.0, tf32_flops: 3000000000000.0, bf16_flops: 6000000000000.0, memory_bytes_per_second: 100000000000.0, memory_bytes: 2147483648, launch_seconds: 5.000000000000001e-7, efficiency: 1.0 }, measurements: Measurements { step_seconds: 0.0, kernels: [], collectives: [] } }"#]]
    .assert_eq(&format!("{cluster:?}"));
}

/// Returns the errors of the good file with one text replaced by another, for each pair.
fn check(replacements: &[[&str; 2]], expected: &Expect) {
    let error = |[old, new]: &[&str; 2]| {
        assert!(GOOD.contains(old), "{old}");
        let text = GOOD.replacen(old, new, 1);
        format!("{}\n", read("mine", "mine.toml", &text).expect_err("the file is wrong"))
    };
    expected.assert_eq(&replacements.iter().map(error).collect::<String>());
}

#[test]
fn mistakes_of_files_are_told_with_their_line() {
    let replacements = [
        ["f32 = \"1.5 TFLOP/s\"", "f32 = \"1.5 TFLOP/s"],
        ["[gpu]", "[gpus]"],
        ["[gpu]", "gpu = 3\n[other]"],
        ["[[level]]", "[level]"],
        ["[[level]]", "[colors]\n[[level]]"],
    ];
    check(
        &replacements,
        &expect![[r#"
        mine.toml:4: invalid basic string, expected `"`
        mine.toml:1: the file lacks `gpu`, a table
        mine.toml:2: `gpu` must be a table, found 3
        mine.toml:19: duplicate key
        mine.toml:12: the file has no key `colors`; its keys are gpu, level, measured
    "#]],
    );
}

#[test]
fn mistakes_of_gpus_are_told_with_their_line() {
    let replacements = [
        ["launch = \"500 ns\"\n", ""],
        ["efficiency = 1", "efficiency = 1\nefficient = 1"],
        ["efficiency = 1", "efficiency = 1.5"],
        ["efficiency = 1", "efficiency = \"1\""],
        ["\"6TFLOP/s\"", "6e12"],
        ["6TFLOP/s", "6 tera"],
        ["6TFLOP/s", "0 TFLOP/s"],
        ["2 GiB", "2 KiB/s"],
        ["2 GiB", "0.5 B"],
        ["\"2 GiB\"", "2147483648"],
        ["\"abacus\"", "[1, 2]"],
    ];
    check(
        &replacements,
        &expect![[r#"
        mine.toml:2: `[gpu]` lacks `launch`, a time such as "2.5 us"
        mine.toml:11: `[gpu]` has no key `efficient`; its keys are bf16, efficiency, f32, launch, memory, memory_bandwidth, name, tf32
        mine.toml:10: `efficiency` must be a number above 0 and up to 1, found 1.5
        mine.toml:10: `efficiency` must be a number above 0 and up to 1, found "1"
        mine.toml:6: `bf16` must be a speed of arithmetic above 0 such as "67 TFLOP/s", found 6e12
        mine.toml:6: `bf16` must be a speed of arithmetic above 0 such as "67 TFLOP/s", found "6 tera"
        mine.toml:6: `bf16` must be a speed of arithmetic above 0 such as "67 TFLOP/s", found "0 TFLOP/s"
        mine.toml:7: `memory` must be a size of memory in a string, such as "80GiB": unknown unit `KiB/s`; the units are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB
        mine.toml:7: `memory` must be a size of memory in a string, such as "80GiB": it must lie between 1 B and 2^63 B
        mine.toml:7: `memory` must be a size of memory in a string, such as "80GiB", found 2147483648
        mine.toml:3: `name` must be a string, found a list
    "#]],
    );
}

#[test]
fn mistakes_of_levels_are_told_with_their_line() {
    let replacements = [
        ["1.5 ms", "-1 s"],
        ["count = 3", "count = 0"],
        ["count = 3", "count = 3.0"],
        ["count = 3", "count = 40000"],
        ["gpus_per_link = 2", "gpus_per_link = 3"],
        ["latency = \"0 s\"", "latency = \"0 s\"\ncolor = \"red\""],
    ];
    check(
        &replacements,
        &expect![[r#"
        mine.toml:16: `latency` must be a time such as "2.5 us", found "-1 s"
        mine.toml:14: `count` must be an integer from 1 to 65536, found 0
        mine.toml:14: `count` must be an integer from 1 to 65536, found 3.0
        mine.toml:1: a cluster has at most 65536 GPUs, found 160000
        mine.toml:17: `gpus_per_link` must divide the 4 GPUs of each of the 3 nodes, found 3
        mine.toml:24: `[[level]]` has no key `color`; its keys are bandwidth, count, gpus_per_link, latency, name
    "#]],
    );
}

/// The good file with one level and measurements.
const MEASURED: &str = r#"[gpu]
name = "abacus"
f32 = "1.5 TFLOP/s"
tf32 = "3 TFLOP/s"
bf16 = "6TFLOP/s"
memory = "2 GiB"
memory_bandwidth = "100 GB/s"
launch = "500 ns"
efficiency = 1

[[level]]
name = "ranks"
count = 4
bandwidth = "1 GB/s"
latency = "2 us"

[measured]
step = "8.5 us"

[measured.kernels]
contraction = [[8192, 3072, 1.25e-6], [512, 576, 0.5]]
max-pool-gradient = [[0, 64, 1]]

[measured.collectives]
all-reduce = [[2, 1e-6, 2e9], [4, 0, 1e9]]
"#;

#[test]
fn measured_times_are_read() {
    let measurements = read("mine", "mine.toml", MEASURED).unwrap().measurements;
    let kernel = |name: &'static str, operations, bytes, seconds| MeasuredKernel {
        name: name.into(),
        operations,
        bytes,
        seconds,
    };
    let kernels = vec![
        kernel("contraction", 8192, 3072, 1.25e-6),
        kernel("contraction", 512, 576, 0.5),
        kernel("max-pool-gradient", 0, 64, 1.0),
    ];
    let collective = |n_ranks, latency_seconds, bytes_per_second| MeasuredCollective {
        kind: CollectiveKind::AllReduce,
        n_ranks,
        latency_seconds,
        bytes_per_second,
    };
    let collectives = vec![collective(2, 1e-6, 2e9), collective(4, 0.0, 1e9)];
    let (kernels, collectives) = (kernels.into(), collectives.into());
    let expected = Measurements { step_seconds: measurements.step_seconds, kernels, collectives };
    assert_eq!(measurements, expected);
    assert!((measurements.step_seconds - 8.5e-6).abs() < 1e-18);
}

#[test]
fn written_clusters_are_read_back() {
    let same = |cluster: &Cluster| {
        let text = write(cluster, "a comment\n\nof \"lines\"");
        assert!(text.starts_with("# a comment\n#\n# of \"lines\"\n[gpu]\n"), "{text}");
        let read = read(&cluster.name, "mine.toml", &text).unwrap();
        assert_eq!(write(&read, "a comment\n\nof \"lines\""), text);
        assert_eq!(read.levels.len(), cluster.levels.len());
        assert_eq!(read.measurements.kernels, cluster.measurements.kernels);
        assert_eq!(read.measurements.collectives, cluster.measurements.collectives);
        assert_eq!((&read.device.name, &read.name), (&cluster.device.name, &cluster.name));
        let close = |one: f64, other: f64| (one - other).abs() <= 1e-5 * other;
        assert!(close(read.device.f32_flops, cluster.device.f32_flops), "{text}");
        assert!(close(read.device.launch_seconds, cluster.device.launch_seconds), "{text}");
        assert_eq!(read.device.memory_bytes, cluster.device.memory_bytes);
    };
    preset_names().for_each(|it| same(&preset(it).unwrap()));
    let measured = read("mine", "mine.toml", MEASURED).unwrap();
    same(&measured);
    let strange = "a \"device\"\\ with\ta tab".to_owned();
    let device = soybean_plan::Device { name: strange.into(), ..measured.device.clone() };
    same(&Cluster { device, ..measured });
}

#[test]
fn mistakes_of_measurements_are_told_with_their_line() {
    let error = |[old, new]: [&str; 2]| {
        assert!(MEASURED.contains(old), "{old}");
        let text = MEASURED.replacen(old, new, 1);
        format!("{}\n", read("mine", "mine.toml", &text).expect_err("the file is wrong"))
    };
    let errors = [
        ["step = \"8.5 us\"", ""],
        ["step = \"8.5 us\"", "step = \"8.5 us\"\nsteps = 1"],
        ["max-pool-gradient", "max-pool-backward"],
        ["all-reduce", "slice"],
        ["[8192, 3072, 1.25e-6]", "[8192, 3072]"],
        ["[8192, 3072, 1.25e-6]", "[8192.5, 3072, 1e-6]"],
        ["[8192, 3072, 1.25e-6]", "[8192, 3072, 0]"],
        ["[8192, 3072, 1.25e-6]", "[8192, 3072, nan]"],
        ["[[0, 64, 1]]", "3"],
        ["[4, 0, 1e9]", "[1, 0, 1e9]"],
        ["[4, 0, 1e9]", "[4, 0, 0]"],
        ["[measured.kernels]", "kernels = 3\n[measured.others]"],
        [
            "[measured]",
            "[[level]]\nname = \"gpus\"\ncount = 2\nbandwidth = \"1 B/s\"\nlatency = \"0 s\"\n[measured]",
        ],
    ];
    expect![[r#"
        mine.toml:17: `[measured]` lacks `step`, a time such as "2.5 us"
        mine.toml:19: `[measured]` has no key `steps`; its keys are collectives, kernels, step
        mine.toml:22: `[measured.kernels]` has no key `max-pool-backward`; its keys are attention, attention-gradient, attention-key-gradient, attention-query-gradient, attention-value-gradient, concatenation, contraction, convolution, convolution-data, convolution-filter, gather, gather-elements, map, max-pool, max-pool-gradient, padding, permutation, rank-ascending, rank-descending, reduction, scatter-add, scatter-elements, slice, sum-pool, sum-pool-gradient
        mine.toml:25: `[measured.collectives]` has no key `slice`; its keys are all-gather, all-reduce, all-to-all, reduce-scatter
        mine.toml:21: a row of `contraction` must be [operations, bytes, seconds], such as [524288, 49152, 1.2e-5], found [8192, 3072]
        mine.toml:21: a row of `contraction` must be [operations, bytes, seconds], such as [524288, 49152, 1.2e-5], found [8192.5, 3072, 1e-6]
        mine.toml:21: a row of `contraction` must be [operations, bytes, seconds], such as [524288, 49152, 1.2e-5], found [8192, 3072, 0]
        mine.toml:21: a row of `contraction` must be [operations, bytes, seconds], such as [524288, 49152, 1.2e-5], found [8192, 3072, nan]
        mine.toml:22: `max-pool-gradient` must be a list of rows [operations, bytes, seconds], such as [524288, 49152, 1.2e-5], found 3
        mine.toml:25: a row of `all-reduce` must be [ranks, seconds, bytes per second], such as [8, 1.5e-6, 3.2e9], of at least 2 ranks, found [1, 0, 1e9]
        mine.toml:25: a row of `all-reduce` must be [ranks, seconds, bytes per second], such as [8, 1.5e-6, 3.2e9], of at least 2 ranks, found [4, 0, 0]
        mine.toml:20: `kernels` must be a table, found 3
        mine.toml:29: `[measured.collectives]` holds for clusters of one level, found 2 levels
    "#]].assert_eq(&errors.map(error).concat());
}

#[test]
fn presets_are_read() {
    let counts: Vec<(&str, usize)> =
        preset_names().map(|it| (it, preset(it).unwrap().n_gpus())).collect();
    let expected = [
        ("p2.8xlarge", 8),
        ("dgx-h100", 8),
        ("dgx-h200", 8),
        ("2x8-h100-ib", 16),
        ("pcie-4x4090", 4),
    ];
    assert_eq!(counts, expected);
    assert_eq!(preset("abacus"), None);
}
