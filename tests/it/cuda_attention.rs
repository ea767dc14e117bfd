//! Tests of measured attention on virtual GPUs: plans of cuDNN are candidates beside the generated
//! kernel, and so are its tiles. Up to rounding, the losses equal the CPU's.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process,
};

use soybean::{Config, Device, Trainer};
use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus};

const BATCH: usize = 2;
const TOKENS: usize = 40;
const WIDTH: usize = 32;
const N_STEPS: usize = 4;

/// Both devices round to `bf16` as the program says. Weights of keys are rounded only on GPUs,
/// before they are divided by their sum. Each rounding is at most 2^-8, about ten follow one
/// another, and half of the errors cancel.
const TOLERANCE: f32 = 2e-2;

/// Two layers: four heads of queries that share two heads of keys and see all before them, then
/// four heads that see all.
#[soybean::model(gpus = 1, precision = "bf16", optimizer = adamw())]
pub(crate) mod texts {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 2, 40, 32>, y: Tensor<i32, 80>) -> Tensor {
        let q = nn::linear(x, 32).reshape([2, 40, 4, 8]).permute([0, 2, 1, 3]);
        let k = nn::linear(x, 16).reshape([2, 40, 2, 8]).permute([0, 2, 1, 3]);
        let v = nn::linear(x, 16).reshape([2, 40, 2, 8]).permute([0, 2, 1, 3]);
        let seen = q.scaled_dot_product_attention(k, v, true);
        let h = x + nn::linear(seen.permute([0, 2, 1, 3]).reshape([2, 40, 32]), 32);
        let q = nn::linear(h, 32).reshape([2, 40, 4, 8]).permute([0, 2, 1, 3]);
        let k = nn::linear(h, 32).reshape([2, 40, 4, 8]).permute([0, 2, 1, 3]);
        let v = nn::linear(h, 32).reshape([2, 40, 4, 8]).permute([0, 2, 1, 3]);
        let seen = q.scaled_dot_product_attention(k, v, false);
        let h = h + nn::linear(seen.permute([0, 2, 1, 3]).reshape([2, 40, 32]), 32);
        nn::linear(h, 10).reshape([80, 10]).cross_entropy(y)
    }
}

/// Heads that see more than the usual tiles have rows.
#[soybean::model(gpus = 1, precision = "bf16", optimizer = adamw())]
pub(crate) mod long_texts {
    use soybean::{nn, prelude::*};

    fn heads(x: Tensor) -> Tensor {
        nn::linear(x, 32).reshape([1, 80, 2, 16]).permute([0, 2, 1, 3])
    }

    pub(crate) fn forward(x: Tensor<f32, 1, 80, 32>, y: Tensor<i32, 80>) -> Tensor {
        let seen = heads(x).scaled_dot_product_attention(heads(x), heads(x), true);
        let h = x + nn::linear(seen.permute([0, 2, 1, 3]).reshape([1, 80, 32]), 32);
        nn::linear(h, 10).reshape([80, 10]).cross_entropy(y)
    }
}

/// The measurements of a kind of attention: two deterministic engines, each four times.
const N_MEASURED: usize = 2 * 4;

fn config(device: Device, autotunes: bool) -> Config {
    Config { device, learning_rate: 0.01, autotunes, ..Config::default() }
}

/// Returns the batch of both models: as many numbers and labels.
fn batch() -> (Vec<f32>, Vec<i32>) {
    let number = |it: usize| (it * 7919 + 104_729) % 2003;
    let numbers = (0..BATCH * TOKENS * WIDTH).map(|it| number(it) as f32 / 1001.0 - 1.0);
    let labels = (0..BATCH * TOKENS).map(|it| i32::try_from(number(it) % 10).unwrap());
    (numbers.collect(), labels.collect())
}

fn losses(device: Device, autotunes: bool) -> Vec<f32> {
    let mut trainer = Trainer::<texts::Network>::new(config(device, autotunes)).unwrap();
    let (x, y) = batch();
    (0..N_STEPS).map(|_| trainer.step(&texts::Batch { x: &x, y: &y }).unwrap()).collect()
}

fn losses_of_long_texts(device: Device) -> Vec<f32> {
    let mut trainer = Trainer::<long_texts::Network>::new(config(device, true)).unwrap();
    let (x, y) = batch();
    (0..N_STEPS).map(|_| trainer.step(&long_texts::Batch { x: &x, y: &y }).unwrap()).collect()
}

fn assert_close(found: &[f32], expected: &[f32]) {
    let is_near =
        |(found, expected): (&f32, &f32)| (found - expected).abs() <= TOLERANCE * expected.abs();
    let are_near = found.len() == expected.len() && found.iter().zip(expected).all(is_near);
    assert!(are_near, "expected {expected:?}, found {found:?}");
}

/// Runs `body` with a cuDNN that has attention, and the folder of choices.
fn with_attention(test: &str, settings: &[(&str, &str)], body: impl FnOnce(&Machine, &Path)) {
    let name = test.rsplit("::").next().unwrap_or(test);
    let folder = env::temp_dir().join(format!("soybean-{name}-{}", process::id()));
    let cache = [
        ("SOYBEAN_CACHE_DIR", folder.to_str().unwrap()),
        ("SOYBEAN_FAKE_CUDNN", "92800"),
        ("SOYBEAN_FAKE_DEVICES", "1"),
    ];
    on_virtual_gpus(test, &[&cache, settings].concat(), |machine| {
        let folder = PathBuf::from(env::var_os("SOYBEAN_CACHE_DIR").unwrap());
        body(machine, &folder);
        assert_eq!(machine.n_complaints(), 0);
    });
    let _gone = fs::remove_dir_all(folder);
}

/// Returns the files of choices in a folder, which may not exist yet.
fn choices(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().map(|it| it.unwrap().path());
    files.filter(|it| it.extension().is_some_and(|it| it == "choices")).collect()
}

/// Returns the numbers of the chosen candidates of attention, one for each kind: those of both
/// layers, with saved logarithms or not.
fn chosen(folder: &Path) -> Vec<u32> {
    let texts = choices(folder).into_iter().map(|it| fs::read(it).unwrap());
    let texts: String = texts.map(|it| String::from_utf8_lossy(&it).into_owned()).collect();
    let lines = texts.lines().filter(|it| it.contains("cuDNN's engines"));
    // The digit before the times: a checksum precedes the first line.
    let number = |line: &str| line.split_once(" [")?.0.chars().last()?.to_digit(10);
    lines.map(|it| number(it).expect("a line begins with the number")).collect()
}

fn n_executed(machine: &Machine) -> u64 {
    machine.n_calls("cudnnBackendExecute")
}

#[test]
fn a_plan_of_cudnn_runs_if_it_is_the_choice() {
    let test = "cuda_attention::a_plan_of_cudnn_runs_if_it_is_the_choice";
    with_attention(test, &[], |machine, folder| {
        assert_close(&losses(Device::Cuda, false), &losses(Device::Cpu, false));
        // Without measurements, cuDNN is not asked.
        assert_eq!(machine.n_calls("cudnnBackendCreateDescriptor"), 0);
        let mut all = BTreeSet::new();
        for seed in 0..8 {
            machine.reset(seed);
            choices(folder).into_iter().for_each(|it| fs::remove_file(it).unwrap());
            assert_close(&losses(Device::Cuda, true), &losses(Device::Cpu, false));
            let first = n_executed(machine);
            let chosen = chosen(folder);
            assert!(chosen.len() > 2, "{chosen:?}");
            let n_measured = (chosen.len() * N_MEASURED) as u64;
            // An attention that cuDNN computes runs at least once: a graph repeats it.
            let is_generated = chosen.iter().all(|it| *it == 0);
            let is_computed = chosen.iter().all(|it| *it > 0);
            assert!(first >= n_measured && (!is_generated || first == n_measured));
            assert!(!is_computed || first > n_measured);
            // The second start does not measure.
            assert_close(&losses(Device::Cuda, true), &losses(Device::Cpu, false));
            assert_eq!(n_executed(machine) - first, first - n_measured);
            all.extend(chosen);
        }
        // The generated kernel and the two deterministic engines. The first is not.
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    });
}

#[test]
fn the_generated_kernel_runs_if_it_is_faster() {
    let test = "cuda_attention::the_generated_kernel_runs_if_it_is_faster";
    with_attention(test, &[("SOYBEAN_FAKE_ATTENTION_DELAY", "16")], |machine, folder| {
        assert_close(&losses(Device::Cuda, true), &losses(Device::Cpu, false));
        let chosen = chosen(folder);
        assert!(chosen.len() > 2 && chosen.iter().all(|it| *it == 0), "{chosen:?}");
        assert_eq!(n_executed(machine), (chosen.len() * N_MEASURED) as u64);
    });
}

#[test]
fn a_refusal_of_cudnn_leaves_the_generated_kernel() {
    let test = "cuda_attention::a_refusal_of_cudnn_leaves_the_generated_kernel";
    with_attention(test, &[("SOYBEAN_FAKE_NO_ATTENTION", "1")], |machine, folder| {
        assert_close(&losses(Device::Cuda, true), &losses(Device::Cpu, false));
        assert!(machine.n_calls("cudnnBackendFinalize") > 0);
        assert_eq!((n_executed(machine), chosen(folder).len()), (0, 0));
    });
}

#[test]
fn tiles_are_measured() {
    let test = "cuda_attention::tiles_are_measured";
    with_attention(test, &[("SOYBEAN_FAKE_CUDNN", "92000")], |machine, folder| {
        let expected = losses_of_long_texts(Device::Cpu);
        let mut all = BTreeSet::new();
        for seed in 0..6 {
            machine.reset(seed);
            choices(folder).into_iter().for_each(|it| fs::remove_file(it).unwrap());
            assert_close(&losses_of_long_texts(Device::Cuda), &expected);
            let chosen = chosen(folder);
            // The forward computation and the gradients at least.
            assert!(chosen.len() > 1, "{chosen:?}");
            all.extend(chosen);
        }
        assert!(all.len() > 1, "{all:?}");
    });
}
