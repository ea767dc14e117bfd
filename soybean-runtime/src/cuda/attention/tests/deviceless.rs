//! The real cuDNN's plans for our graph on an H100, which is described instead of present.
//!
//! `scripts/cuda-headers.sh` puts cuDNN beside the headers. It runs without a GPU, but needs a
//! driver's library, whose place `driver.cpp` takes.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use soybean_plan::Attention;

use super::{
    super::{
        AttentionShape, FIRST_VERSION,
        operation::{PlanTarget, plans},
    },
    CAUSAL,
};
use crate::cuda::{
    cudnn::{
        CudnnError,
        graph::{Attribute, Descriptor},
    },
    headers::Asserts,
    libraries::installation,
};

const CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: u32 = 38;
const CUDNN_ATTR_ENGINEHEUR_DEVICEPROP: u32 = 204;
const CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP: u32 = 407;
const CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION: u32 = 2702;
const CUDNN_TYPE_CHAR: u32 = 24;

impl Attribute for u8 {
    const TYPE: u32 = CUDNN_TYPE_CHAR;
}

/// The properties of an H100 SXM, under cuDNN's names.
const H100: &str = r#"{
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
struct DescribedGpu(Descriptor);

impl DescribedGpu {
    fn new(properties: &str) -> Result<Self, CudnnError> {
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
        ("CUDNN_TYPE_CHAR", CUDNN_TYPE_CHAR),
    ];
    numbers.iter().for_each(|(name, number)| asserts.equal(name, number));
    asserts.check("cudnn-devices");
}

/// Set to the folder for kernels in the process that has cuDNN.
const INSIDE: &str = "SOYBEAN_CUDNN_KERNELS";
/// The source of a library that stands in for the driver.
const DRIVER: &str = include_str!("driver.cpp");

/// Runs `body` in a second process that has the real cuDNN, and a folder in which its kernels are
/// put.
fn with_cudnn(test: &str, body: impl FnOnce(&Path)) {
    if let Some(kernels) = env::var_os(INSIDE).map(PathBuf::from) {
        return body(&kernels);
    }
    let headers = env::var_os("SOYBEAN_CUDA_HEADERS").map(PathBuf::from);
    let library = headers.map(|it| it.join("nvidia/cudnn/lib")).filter(|it| it.exists());
    let Some(library) = library else {
        return skip("SOYBEAN_CUDA_HEADERS names no folder with cuDNN");
    };
    let test_file = env::current_exe().unwrap();
    let target = test_file.ancestors().nth(3).expect("tests are in target/<profile>/deps");
    let folder = target.join("tmp/cudnn_kernels");
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
fn show(text: &str) {
    println!("{text}");
}

/// Returns the names of the kernels that cuDNN has made since the last call.
fn kernel_names(folder: &Path) -> Vec<String> {
    let file = folder.join("names");
    let names = fs::read_to_string(&file).unwrap_or_default();
    let _none_made = fs::remove_file(&file);
    names.lines().map(str::to_owned).collect()
}

#[test]
fn cudnn_has_kernels_for_attention_on_an_h100() {
    let test = "cuda::attention::tests::deviceless::cudnn_has_kernels_for_attention_on_an_h100";
    with_cudnn(test, |folder| {
        let version = installation().cudnn().unwrap().version;
        assert!(version >= FIRST_VERSION, "{version:?}");
        let gpu = DescribedGpu::new(H100).unwrap();
        let layouts = [CAUSAL.layout, soybean_plan::AttentionLayout::HEADS_FIRST];
        for (features, layout) in
            [64, 128, 256].into_iter().flat_map(|it| layouts.map(|at| (it, at)))
        {
            for (is_causal, saves_logarithms) in
                [(true, true), (true, false), (false, true), (false, false)]
            {
                let attention = Attention {
                    features,
                    width: features,
                    is_causal,
                    layout,
                    saves_logarithms,
                    ..CAUSAL
                };
                let shape = AttentionShape::new(&attention).unwrap();
                let plans = plans(&shape, &gpu).unwrap();
                let names = kernel_names(folder);
                for (plan, name) in plans.iter().zip(&names) {
                    let (engine, n_bytes) = (plan.engine, plan.workspace_bytes);
                    show(&format!(
                        "head size {features}, causal {is_causal}, logarithms {saves_logarithms}, {layout:?}: engine {engine}, workspace {n_bytes}, {name}"
                    ));
                }
                assert_eq!(plans.len(), names.len());
                assert!(names.iter().any(|it| it.contains("sm90")), "{names:?}");
            }
        }
        // Rows of 40 bytes are not multiples of 16 bytes.
        let odd = Attention { features: 20, width: 20, ..CAUSAL };
        let plans = plans(&AttentionShape::new(&odd).unwrap(), &gpu);
        assert!(plans.map_or(0, |it| it.len()) == 0);
    });
}
