//! Clusters: the machines on which programs run, as far as their speed goes.
//!
//! A cluster is a tree: its first [`Level`] joins the largest groups of GPUs, the last one single GPUs. How long steps take on it says a
//! [`Topology`], the part of a cluster on which a mesh lies. These are predictions from data sheets, not measurements.

mod topology;

use std::borrow::Cow;

pub use topology::{Pace, Topology, Unfit};

use crate::Precision;

/// GPUs of one kind and what joins them.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The name: `2x8-h100-ib`.
    pub name: Cow<'static, str>,
    /// What joins the GPUs, slowest first; none where there is one GPU.
    pub levels: Cow<'static, [Level]>,
    /// The GPUs.
    pub device: Device,
}

impl Cluster {
    /// The number of GPUs.
    #[must_use]
    pub fn n_gpus(&self) -> usize {
        self.levels.iter().map(|level| level.count).product()
    }
}

/// What joins some equal groups of GPUs to a larger one: nodes by a network, the halves of a node by a bus, GPUs by a switch.
///
/// Each GPU reaches the other groups by a link. A link carries both directions at once, each at full speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// The name: `nodes`, `sockets`, `gpus`.
    pub name: Cow<'static, str>,
    /// The number of groups that are joined; the groups of the last level are single GPUs.
    pub count: usize,
    /// What one link carries in each direction, in bytes per second. `gpus_per_link` GPUs share that when they all talk, as they do in collectives.
    pub link_bytes_per_second: f64,
    /// The number of GPUs of a group that share one link to the other groups: 1 where each GPU has a network card or NVLink of its own, 4 where four
    /// GPUs stand behind one PCIe switch.
    pub gpus_per_link: usize,
    /// The time from the start of a transfer until its first byte arrives, in seconds.
    pub latency_seconds: f64,
}

/// A GPU, as far as its speed goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The name: `H100 SXM`.
    pub name: Cow<'static, str>,
    /// Floating-point operations per second at most, in single precision; a multiplication and an addition count as two.
    pub f32_flops: f64,
    /// The same for products in `tf32`; that of single precision where a device has no such units.
    pub tf32_flops: f64,
    /// The same for products in `bf16`.
    pub bf16_flops: f64,
    /// What its memory carries at most, in bytes per second.
    pub memory_bytes_per_second: f64,
    /// The size of its memory, in bytes.
    pub memory_bytes: u64,
    /// The time that each kernel takes besides its work, in seconds.
    pub launch_seconds: f64,
    /// The share of these speeds that kernels attain, of arithmetic and of memory alike; from above 0 to 1.
    pub efficiency: f64,
}

impl Device {
    /// Floating-point operations per second at most, for products in this precision.
    #[must_use]
    pub const fn product_flops(&self, precision: Precision) -> f64 {
        match precision {
            Precision::F32 => self.f32_flops,
            Precision::Tf32 => self.tf32_flops,
            Precision::Bf16 => self.bf16_flops,
        }
    }

    /// The time of a kernel, in seconds: launch, then arithmetic or memory, whichever takes longer. Kernels of [`WorkKind::Product`]
    /// compute with the units of `precision`, others in single precision. Source: the roofline of Williams, Waterman and Patterson 2009.
    #[must_use]
    pub fn seconds(&self, work: Work, precision: Precision) -> f64 {
        let flops = match work.kind {
            WorkKind::Product => self.product_flops(precision),
            WorkKind::Other => self.f32_flops,
        };
        let arithmetic = work.operations as f64 / flops;
        let memory = work.bytes as f64 / self.memory_bytes_per_second;
        self.launch_seconds + arithmetic.max(memory) / self.efficiency
    }
}

/// What a kernel has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// With which units it computes.
    pub kind: WorkKind,
    /// Floating-point operations; a multiplication and an addition are two.
    pub operations: u64,
    /// Bytes read and written, each operand and each result once.
    pub bytes: u64,
}

/// With which units a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkKind {
    /// Those for products: matrix products, convolutions, attention.
    Product,
    /// Those for single numbers.
    Other,
}
