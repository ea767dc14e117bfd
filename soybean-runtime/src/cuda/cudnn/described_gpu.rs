//! The real cuDNN without a GPU, in tests: it plans for an H100 that is described.
//!
//! `scripts/cuda-headers.sh` puts cuDNN beside the headers. It runs without a GPU, but needs a
//! driver's library, whose place `driver.cpp` takes.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{CudnnError, engines::PlanTarget, graph::Descriptor};
use crate::cuda::{headers::Asserts, libraries::installation};

const CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: u32 = 38;
const CUDNN_ATTR_ENGINEHEUR_DEVICEPROP: u32 = 204;
const CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP: u32 = 407;
const CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION: u32 = 2702;

/// The properties of an H100 SXM, under cuDNN's names.
pub(in crate::cuda) const H100: &str = r#"{
    "deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900, "driverVer": 13000,
    "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1,
    "multiProcessorCount": 132, "smCountOrigin": 0, "warpSize": 32,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
    "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024, "oversizedSharedMemoryPerBlock": 0,
    "totalGlobalMem": 85017624576, "l2CacheSize": 52428800, "memoryBusWidth": 5120,
    "smClockRateKHz": 1980000, "memClockRateKHz": 2619000
}"#;

/// A GPU that is only described.
pub(in crate::cuda) struct DescribedGpu(Descriptor);

impl DescribedGpu {
    pub(in crate::cuda) fn new(properties: &str) -> Result<Self, CudnnError> {
        let text = [properties.as_bytes(), &[0]].concat();
        let descriptor = Descriptor::new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?
            .with(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, &text)?;
        descriptor.finalized().map(Self)
    }
}

impl PlanTarget for DescribedGpu {
    fn of_graph(&self, graph: Descriptor) -> Result<Descriptor, CudnnError> {
        Ok(graph)
    }

    fn of_heuristic(&self, heuristic: Descriptor) -> Result<Descriptor, CudnnError> {
        heuristic.with(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, &[self.0.raw()])
    }

    fn of_plan(&self, plan: Descriptor) -> Result<Descriptor, CudnnError> {
        plan.with(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, &[self.0.raw()])
    }
}

#[test]
fn numbers_of_devices_are_those_of_the_header() {
    let mut asserts = Asserts::about("cudnn.h");
    let numbers = [
        ("CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR", CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR),
        ("CUDNN_ATTR_ENGINEHEUR_DEVICEPROP", CUDNN_ATTR_ENGINEHEUR_DEVICEPROP),
        ("CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP", CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP),
        ("CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION", CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION),
    ];
    numbers.iter().for_each(|(name, number)| asserts.equal(name, number));
    asserts.check("cudnn-devices");
}

/// Set to the folder for kernels in the process that has cuDNN.
const INSIDE: &str = "SOYBEAN_CUDNN_KERNELS";
/// The source of a library that stands in for the driver.
const DRIVER: &str = include_str!("described_gpu/driver.cpp");

/// Runs `body` in a second process that has the real cuDNN, and a folder in which its kernels are
/// put.
pub(in crate::cuda) fn with_cudnn(test: &str, body: impl FnOnce(&Path)) {
    if let Some(kernels) = env::var_os(INSIDE).map(PathBuf::from) {
        installation().cudnn().unwrap();
        return body(&kernels);
    }
    let headers = env::var_os("SOYBEAN_CUDA_HEADERS").map(PathBuf::from);
    let library = headers.map(|it| it.join("nvidia/cudnn/lib")).filter(|it| it.exists());
    let Some(library) = library else {
        return skip("SOYBEAN_CUDA_HEADERS names no folder with cuDNN");
    };
    let test_file = env::current_exe().unwrap();
    let target = test_file.ancestors().nth(3).expect("tests are in target/<profile>/deps");
    let folder = target.join("tmp/cudnn_kernels").join(test.replace("::", "-"));
    let _nothing_there = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let source = folder.join("driver.cpp");
    fs::write(&source, DRIVER).unwrap();
    let mut compiler = Command::new(env::var_os("CXX").unwrap_or_else(|| "g++".into()));
    let driver = folder.join("libcuda.so.1");
    compiler.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]).arg(&driver).arg(&source);
    assert!(compiler.status().unwrap().success());
    let output = Command::new(&test_file)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, &folder)
        .env("LD_LIBRARY_PATH", &folder)
        .env("SOYBEAN_CACHE_DIR", folder.join("cache"))
        .env("SOYBEAN_CUDA_LIBS", library)
        .output()
        .unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success(), "with cuDNN: {stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "expected that {test} runs, found {stdout}");
    show(&stdout);
}

#[expect(clippy::print_stderr, reason = "a skipped test should be visible in the output")]
fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

#[expect(clippy::print_stdout, reason = "the engines are the result")]
pub(in crate::cuda) fn show(text: &str) {
    println!("{text}");
}

/// Returns the names of the kernels that cuDNN has made since the last call.
pub(in crate::cuda) fn kernel_names(folder: &Path) -> Vec<String> {
    let file = folder.join("names");
    let names = fs::read_to_string(&file).unwrap_or_default();
    let _none_made = fs::remove_file(&file);
    names.lines().map(str::to_owned).collect()
}
