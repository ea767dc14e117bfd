//! Settings from the environment: the devices and injected errors.

use std::env;
use std::ffi::c_int;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::work::PlantedFault;

/// Settings; the README describes the variables.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Numbers of the visible devices among those of the machine.
    pub(crate) devices: Vec<usize>,
    pub(crate) driver_version: i32,
    /// Memory of each device.
    pub(crate) memory_bytes: u64,
    pub(crate) seed: u64,
    pub(crate) has_peer_access: bool,
    pub(crate) fail_launch: Option<u64>,
    pub(crate) hang_launch: Option<u64>,
    pub(crate) planted_faults: Vec<PlantedFault>,
    /// Algorithms that cuBLASLt suggests.
    pub(crate) n_algorithms: c_int,
    /// True if cuBLASLt's algorithms without workspace, and every second engine of cuDNN for a
    /// convolution with ReLU, make 0 of NaN in ReLU.
    pub(crate) relu_drops_nan: bool,
    /// True if engines of cuDNN do not say that they use tensor cores.
    pub(crate) hides_rounding: bool,
    pub(crate) skip_wait: Option<u64>,
    /// Pieces of work for which a stream has room.
    pub(crate) queue_length: Option<usize>,
    /// True if all calls for a device wait while a launch waits for room.
    pub(crate) queue_locks: bool,
    /// Time by which the first call of a capture returns later.
    pub(crate) capture_delay: Duration,
    /// True if communicators report an asynchronous error.
    pub(crate) fail_communicators: bool,
    /// Folder through which ranks of several processes communicate.
    pub(crate) nccl_folder: Option<PathBuf>,
    /// Status of cuDNN's start instead of success.
    pub(crate) cudnn_status: Option<u32>,
    /// Version of cuDNN.
    pub(crate) cudnn_version: usize,
    /// True if cuDNN refuses plans of attention.
    pub(crate) refuses_attention: bool,
    /// Pieces of work that delay each attention of cuDNN.
    pub(crate) attention_delay: usize,
    /// True if cuBLASLt knows no distance between the biases of a batch.
    pub(crate) has_no_bias_stride: bool,
    /// True if cuDNN refuses plans of convolutions with other operations.
    pub(crate) refuses_activations: bool,
    /// Folder for the numbers of calls of each process.
    pub(crate) calls_folder: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn from_environment() -> Self {
        Self {
            devices: devices(),
            driver_version: number("SOYBEAN_FAKE_DRIVER").unwrap_or(13_000),
            memory_bytes: number("SOYBEAN_FAKE_MEMORY").unwrap_or(1 << 30),
            seed: number("SOYBEAN_FAKE_SEED").unwrap_or(1),
            has_peer_access: number::<u8>("SOYBEAN_FAKE_NO_PEER").is_none(),
            fail_launch: number("SOYBEAN_FAKE_FAIL_LAUNCH"),
            hang_launch: number("SOYBEAN_FAKE_HANG_LAUNCH"),
            planted_faults: planted_faults(),
            n_algorithms: number("SOYBEAN_FAKE_ALGORITHMS").unwrap_or(1),
            relu_drops_nan: number::<u8>("SOYBEAN_FAKE_RELU_DROPS_NAN").is_some(),
            hides_rounding: number::<u8>("SOYBEAN_FAKE_HIDES_ROUNDING").is_some(),
            skip_wait: number("SOYBEAN_FAKE_SKIP_WAIT"),
            queue_length: number("SOYBEAN_FAKE_QUEUE"),
            queue_locks: number::<u8>("SOYBEAN_FAKE_QUEUE_LOCKS").is_some(),
            capture_delay: Duration::from_millis(number("SOYBEAN_FAKE_CAPTURE_DELAY").unwrap_or(0)),
            fail_communicators: number::<u8>("SOYBEAN_FAKE_NCCL_ERROR").is_some(),
            nccl_folder: env::var_os("SOYBEAN_FAKE_NCCL_FOLDER").map(PathBuf::from),
            cudnn_status: number("SOYBEAN_FAKE_CUDNN_STATUS"),
            cudnn_version: number("SOYBEAN_FAKE_CUDNN").unwrap_or(91_000),
            refuses_attention: number::<u8>("SOYBEAN_FAKE_NO_ATTENTION").is_some(),
            attention_delay: number("SOYBEAN_FAKE_ATTENTION_DELAY").unwrap_or(0),
            has_no_bias_stride: number::<u8>("SOYBEAN_FAKE_NO_BIAS_STRIDE").is_some(),
            refuses_activations: number::<u8>("SOYBEAN_FAKE_NO_ACTIVATIONS").is_some(),
            calls_folder: env::var_os("SOYBEAN_FAKE_CALLS").map(PathBuf::from),
        }
    }
}

/// Returns the devices in `CUDA_VISIBLE_DEVICES` up to the first invalid one, or all devices.
fn devices() -> Vec<usize> {
    let all = number("SOYBEAN_FAKE_DEVICES").unwrap_or(8);
    let Ok(visible) = env::var("CUDA_VISIBLE_DEVICES") else { return (0..all).collect() };
    let numbers = visible.split(',').map(|it| it.trim().parse().ok().filter(|it| *it < all));
    numbers.map_while(|it| it).collect()
}

/// Returns the faults of kernels, and ignores what is none.
fn planted_faults() -> Vec<PlantedFault> {
    let text = env::var("SOYBEAN_FAKE_PLANT").unwrap_or_default();
    text.split(',').filter_map(|it| it.trim().parse().ok()).collect()
}

fn number<T: FromStr>(variable: &str) -> Option<T> {
    env::var(variable).ok()?.parse().ok()
}
