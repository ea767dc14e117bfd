//! Tests of machines without some of the CUDA libraries, or with several versions.

use std::{fs, path::Path};

use soybean::{Config, Device, Network, runtime};

use soybean_fake_cuda::{
    install, install_development_names,
    virtual_gpus::{on_virtual_gpus, on_virtual_gpus_without},
};

use super::{cnn_digits, digits, losses, schedules::trains_as_on_the_cpu, trainer};

/// Without these libraries, the device `cuda` is an error, and `auto` uses the CPU.
fn refused(left_out: &[&str], test: &str, expected: &str) {
    on_virtual_gpus_without(left_out, test, &[], |_| {
        let config = Config { device: Device::Cuda, ..Config::default() };
        let made = runtime::Trainer::new(digits::Network::model(), config);
        let error = made.err().expect("the device cannot be used").to_string();
        assert!(error.contains(expected), "expected {expected:?} in: {error}");
        let mut by_itself = trainer::<digits::Network>(Device::Auto, true);
        let mut on_cpu = trainer::<digits::Network>(Device::Cpu, true);
        let line = by_itself.device_line();
        assert!(line.starts_with(&on_cpu.device_line()), "{line}");
        // If there is a driver, the reason for using the CPU is printed.
        let has_driver = !left_out.contains(&"cuda");
        assert_eq!(line.contains(expected), has_driver, "{line}");
        assert_eq!(losses(&mut by_itself), losses(&mut on_cpu));
    });
}

#[test]
fn without_a_driver() {
    refused(
        &["cuda"],
        "cuda::libraries::without_a_driver",
        "expected NVIDIA's driver (libcuda.so.1), found none",
    );
}

#[test]
fn without_nvrtc() {
    refused(
        &["nvrtc"],
        "cuda::libraries::without_nvrtc",
        "NVRTC: expected libnvrtc.so.13 or libnvrtc.so.12, found none",
    );
}

#[test]
fn without_cublaslt() {
    refused(
        &["cublasLt"],
        "cuda::libraries::without_cublaslt",
        "cuBLASLt: expected libcublasLt.so.13 or libcublasLt.so.12, found none",
    );
}

/// Generated kernels compute convolutions.
#[test]
fn without_cudnn() {
    on_virtual_gpus_without(&["cudnn"], "cuda::libraries::without_cudnn", &[], |machine| {
        trains_as_on_the_cpu::<cnn_digits::Network>(machine, 0..4);
    });
}

/// Ranks read each other's memory.
#[test]
fn without_nccl() {
    on_virtual_gpus_without(&["nccl"], "cuda::libraries::without_nccl", &[], |machine| {
        let line = trainer::<digits::Network>(Device::Cuda, true).device_line();
        assert!(line.contains("by copies between the devices"), "{line}");
        trains_as_on_the_cpu::<digits::Network>(machine, 0..40);
    });
}

/// Development packages add names without a version in the loader's folders. Only the libraries in
/// the folder of `SOYBEAN_CUDA_LIBS` are opened.
#[test]
fn libraries_are_those_of_the_named_folder() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let named = install(&folder.join("named_libraries")).unwrap();
    let development = install_development_names(&folder.join("development_packages")).unwrap();
    let [named, development] = [&named, &development].map(|it| it.to_str().unwrap());
    let settings = [
        ("SOYBEAN_CUDA_LIBS", named),
        ("LD_LIBRARY_PATH", &format!("{development}:{named}")),
        ("SOYBEAN_CACHE_DIR", ""),
        ("XDG_CACHE_HOME", ""),
        ("HOME", ""),
    ];
    let test = "cuda::libraries::libraries_are_those_of_the_named_folder";
    on_virtual_gpus(test, &settings, |machine| {
        losses(&mut trainer::<cnn_digits::Network>(Device::Cuda, true));
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let others: Vec<&str> = maps.lines().filter(|it| it.contains(development)).collect();
        assert!(others.is_empty(), "{others:#?}");
        for function in ["nvrtcCompileProgram", "cublasLtMatmul", "cudnnBackendExecute"] {
            assert!(machine.n_calls(function) > 0, "{function}");
        }
    });
}

/// Without a folder for compiled kernels, all GPUs of an architecture share one compilation.
#[test]
fn kernels_are_compiled_once_for_all_gpus() {
    let folders = ["SOYBEAN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"].map(|it| (it, ""));
    on_virtual_gpus(
        "cuda::libraries::kernels_are_compiled_once_for_all_gpus",
        &folders,
        |machine| {
            drop(trainer::<digits::Network>(Device::Cuda, true));
            assert_eq!(machine.n_calls("nvrtcCompileProgram"), 1);
        },
    );
}
