//! Clusters: the speeds of the machines on which programs run.
//!
//! A cluster is a tree. Its first [`Level`] joins the largest groups of GPUs, and its last one
//! joins single GPUs. A [`Topology`] is the part of a cluster that a mesh occupies, and predicts
//! how long steps take there. Predictions come from data sheets, or from [`Measurements`].

mod measurements;
mod topology;

use std::borrow::Cow;

pub use measurements::{MeasuredCollective, MeasuredKernel, Measurements, measured_names};
pub use topology::{CollectiveCost, Topology, TopologyError};

use crate::{Kernel, Precision};

/// GPUs of one kind and the links between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The name: `2x8-h100-ib`.
    pub name: Cow<'static, str>,
    /// The levels of links between the GPUs, slowest first; empty for one GPU.
    pub levels: Cow<'static, [Level]>,
    /// The GPUs.
    pub device: Device,
    /// Times that were measured on these GPUs.
    pub measurements: Measurements,
}

impl Cluster {
    /// Returns the number of GPUs.
    #[must_use]
    pub fn n_gpus(&self) -> usize {
        self.levels.iter().map(|level| level.count).product()
    }

    /// Returns the time of a kernel, in seconds: a measured time or one between measured times
    /// ([`Measurements::kernel_seconds`]), else that of [`Device::seconds`].
    #[must_use]
    pub fn kernel_seconds(&self, work: KernelWork, precision: Precision) -> f64 {
        let roofline = |work| self.device.seconds(work, precision);
        self.measurements.kernel_seconds(work, roofline).unwrap_or_else(|| roofline(work))
    }
}

/// A level that joins equal groups of GPUs into a larger one: nodes by a network, the halves of a
/// node by a bus, GPUs by a switch.
///
/// Each GPU reaches the other groups through a link. A link carries both directions at once, each
/// at full speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// The name: `nodes`, `sockets`, `gpus`.
    pub name: Cow<'static, str>,
    /// The number of groups that are joined. The groups of the last level are single GPUs.
    pub count: usize,
    /// The bandwidth of one link in each direction, in bytes per second. `gpus_per_link` GPUs share
    /// it when all of them communicate, as they do in collectives.
    pub link_bytes_per_second: f64,
    /// The number of GPUs of a group that share one link to the other groups. It is 1 if each GPU
    /// has its own network card or NVLink, and 4 if four GPUs share one PCIe switch.
    pub gpus_per_link: usize,
    /// The time from the start of a transfer until its first byte arrives, in seconds.
    pub latency_seconds: f64,
}

/// The speeds of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The name: `H100 SXM`.
    pub name: Cow<'static, str>,
    /// Peak floating-point operations per second in single precision; a multiplication and an
    /// addition are two.
    pub f32_flops: f64,
    /// Peak for products in `tf32`; that of single precision for devices without such units.
    pub tf32_flops: f64,
    /// Peak for products in `bf16`.
    pub bf16_flops: f64,
    /// Peak memory bandwidth, in bytes per second.
    pub memory_bytes_per_second: f64,
    /// The size of its memory, in bytes.
    pub memory_bytes: u64,
    /// The fixed cost of launching a kernel, in seconds.
    pub launch_seconds: f64,
    /// The share of the peaks that kernels attain, for arithmetic and memory alike; above 0 and at
    /// most 1.
    pub efficiency: f64,
}

impl Device {
    /// Returns the peak floating-point operations per second for products in this precision.
    #[must_use]
    pub const fn product_flops(&self, precision: Precision) -> f64 {
        match precision {
            Precision::F32 => self.f32_flops,
            Precision::Tf32 => self.tf32_flops,
            Precision::Bf16 => self.bf16_flops,
        }
    }

    /// Returns the time of a kernel, in seconds: the launch, then the longer of arithmetic and
    /// memory. Kernels of [`WorkKind::Product`] compute with the units of `precision`, others in
    /// single precision. Source: the roofline model of Williams, Waterman and Patterson 2009.
    #[must_use]
    pub fn seconds(&self, work: KernelWork, precision: Precision) -> f64 {
        let flops = match work.kind {
            WorkKind::Product => self.product_flops(precision),
            WorkKind::Other => self.f32_flops,
        };
        let arithmetic = work.operations as f64 / flops;
        let memory = work.bytes as f64 / self.memory_bytes_per_second;
        self.launch_seconds + arithmetic.max(memory) / self.efficiency
    }
}

/// The work of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelWork {
    /// The name of the computation: `contraction`, `max-pool-gradient`.
    pub name: &'static str,
    /// The units that it computes with.
    pub kind: WorkKind,
    /// Floating-point operations; a multiplication and an addition are two.
    pub operations: u64,
    /// Bytes read and written, each element at most once.
    pub bytes: u64,
}

impl KernelWork {
    /// Returns the work of a kernel whose operands and results have this many bytes together.
    #[must_use]
    pub fn new(kernel: &Kernel, bytes: u64) -> Self {
        Self {
            name: kernel.form(),
            kind: kernel.work_kind(),
            operations: kernel.n_operations(),
            bytes: kernel.local().map_or(bytes, |it| it.bytes_touched(bytes)),
        }
    }
}

/// The kind of units that a kernel computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkKind {
    /// Units for products: matrix products, convolutions, attention.
    Product,
    /// Units for single numbers.
    Other,
}
