//! Tests of cluster files: the clusters that are read, and the messages of errors.

use expect_test::{Expect, expect};
use soybean_cluster::{preset, preset_names, read};

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
    expect![[r#"Cluster { name: "mine", levels: [Level { name: "nodes", count: 3, link_bytes_per_second: 10000000.0, gpus_per_link: 2, latency_seconds: 0.0015 }, Level { name: "gpus", count: 4, link_bytes_per_second: 1000000000.0, gpus_per_link: 1, latency_seconds: 0.0 }], device: Device { name: "abacus", f32_flops: 1500000000000.0, tf32_flops: 3000000000000.0, bf16_flops: 6000000000000.0, memory_bytes_per_second: 100000000000.0, memory_bytes: 2147483648, launch_seconds: 5.000000000000001e-7, efficiency: 1.0 } }"#]]
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
        mine.toml:12: the file has no key `colors`; its keys are gpu, level
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
