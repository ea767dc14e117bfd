//! The part of a cluster that a mesh occupies, and predicted times there.

use std::fmt;

use super::{Cluster, KernelWork, Level};
use crate::{AxisSet, Bucket, CollectiveKind, Kernel, Mesh, Program, Step};

/// A mesh on a cluster. Each level of the cluster has its own axes, slowest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    cluster: Cluster,
    mesh: Mesh,
    level_of_axis: Vec<usize>,
    /// The number of groups of each level in use.
    counts: Vec<usize>,
}

impl Topology {
    /// Places a mesh of `n_gpus` ranks on a cluster.
    ///
    /// Fast levels are filled first. Each level, from the fastest on, takes the greatest divisor of
    /// the remaining number that it has room for. If the slower levels have no room for the rest,
    /// the ranks stand side by side from the cluster's first GPU on. Then all axes belong to the
    /// slowest level that the ranks cross, as in a ring, whose slowest link decides.
    ///
    /// # Errors
    /// Returns an error if the cluster has too few GPUs.
    pub fn new(cluster: &Cluster, n_gpus: usize) -> Result<Self, TopologyError> {
        if n_gpus > cluster.n_gpus() {
            return Err(TopologyError::new(cluster, n_gpus));
        }
        let Some(counts) = even_counts(&cluster.levels, n_gpus) else {
            return Ok(Self::side_by_side(cluster, n_gpus));
        };
        let (mut sizes, mut level_of_axis) = (Vec::new(), Vec::new());
        for (level, &count) in counts.iter().enumerate() {
            sizes.extend(Mesh::new(count).sizes());
            level_of_axis.resize(sizes.len(), level);
        }
        let mesh = Mesh::of(&sizes);
        Ok(Self { cluster: cluster.clone(), mesh, level_of_axis, counts })
    }

    /// Returns smaller numbers of GPUs on which a program may be faster than on `n_gpus`, largest
    /// first: the largest one that can be spread evenly, and the largest one that fills all groups
    /// below the slowest level that `n_gpus` cross. There is none if `n_gpus` fill them.
    #[must_use]
    pub fn smaller_numbers(cluster: &Cluster, n_gpus: usize) -> Vec<usize> {
        let (mut group, mut below) = (1, 1);
        for level in cluster.levels.iter().rev() {
            group = if below < n_gpus { below } else { group };
            below *= level.count;
        }
        let full = n_gpus / group * group;
        let is_even = |it: usize| even_counts(&cluster.levels, it).is_some();
        let even = (full + 1..n_gpus).rev().find(|&it| !is_even(n_gpus) && is_even(it));
        even.into_iter().chain((full < n_gpus).then_some(full)).collect()
    }

    /// Returns the topology of ranks that no even spread fits.
    fn side_by_side(cluster: &Cluster, n_gpus: usize) -> Self {
        let mut counts = vec![1; cluster.levels.len()];
        let (mut below, mut crossed) = (1, counts.len());
        while below < n_gpus {
            crossed -= 1;
            let level = &cluster.levels[crossed];
            counts[crossed] = level.count.min(n_gpus.div_ceil(below));
            below *= level.count;
        }
        let mesh = Mesh::new(n_gpus);
        let level_of_axis = vec![crossed; mesh.n_axes()];
        Self { cluster: cluster.clone(), mesh, level_of_axis, counts }
    }

    /// Replaces the mesh by one of the same sizes, which may have another digit order.
    ///
    /// # Panics
    /// Panics if its axes have other sizes.
    #[must_use]
    pub fn with_mesh(self, mesh: Mesh) -> Self {
        assert!(mesh.sizes().eq(self.mesh.sizes()), "the mesh has the cluster's axes");
        Self { mesh, ..self }
    }

    /// Returns the cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the mesh.
    #[must_use]
    pub fn mesh(&self) -> Mesh {
        self.mesh
    }

    /// Returns the number of levels, including those without an axis because one of their groups is
    /// enough.
    #[must_use]
    pub fn n_levels(&self) -> usize {
        self.counts.len()
    }

    /// Returns the level that an axis of the mesh belongs to.
    #[must_use]
    pub fn level(&self, axis: usize) -> usize {
        self.level_of_axis[axis]
    }

    /// Returns the bandwidth of a GPU at a level in each direction while all ranks communicate, in
    /// bytes per second.
    #[must_use]
    pub fn bytes_per_second(&self, level: usize) -> f64 {
        let below: usize = self.counts[level + 1..].iter().product();
        let link = &self.cluster.levels[level];
        link.link_bytes_per_second / link.gpus_per_link.min(below) as f64
    }

    /// Returns the bytes that a bucket moves at each level, over all ranks. A transfer counts for
    /// the slowest level between its two ranks.
    #[must_use]
    pub fn bytes_per_level(&self, bucket: &Bucket) -> Vec<u64> {
        let mut bytes = vec![0; self.n_levels()];
        for (axis, moved) in bucket.bytes_per_axis(&self.mesh).into_iter().enumerate() {
            bytes[self.level(axis)] += moved;
        }
        bytes
    }

    /// Returns the speed of collectives of this kind along these axes.
    ///
    /// The latency is that of the slowest level between the ranks, twice for an all-reduce, which
    /// is two exchanges. The bytes of a rank at each level then pass through its share of a link.
    /// Levels work at the same time, so the slowest one counts. A slice moves nothing between ranks
    /// and takes no time here; see [`Self::step_seconds`].
    ///
    /// A transfer counts at one level only. Its use of the links of faster levels is left out, and
    /// so is the arithmetic of reductions.
    #[must_use]
    pub fn collective_cost(&self, kind: CollectiveKind, axes: AxisSet) -> CollectiveCost {
        if kind == CollectiveKind::Slice {
            return CollectiveCost::default();
        }
        let (n_ranks, group) = (self.mesh.n_ranks() as f64, self.mesh.group_size(axes));
        let mut shares = vec![0.0; self.n_levels()];
        for axis in axes.iter() {
            let faster: AxisSet = axes.iter().filter(|&it| it > axis).collect();
            let n_across = (self.mesh.size(axis) - 1) * self.mesh.group_size(faster);
            shares[self.level(axis)] += n_across as f64 / (group - 1) as f64;
        }
        let mut cost = CollectiveCost::default();
        for (level, share) in shares.into_iter().enumerate().filter(|(_, share)| *share > 0.0) {
            let latency = self.latency_seconds(kind, level);
            let per_byte = share / n_ranks / self.bytes_per_second(level);
            cost.latency_seconds = cost.latency_seconds.max(latency);
            cost.seconds_per_byte = cost.seconds_per_byte.max(per_byte);
        }
        cost
    }

    /// Returns the time of a bucket, in seconds, by [`Self::collective_cost`]: one latency, and the
    /// bytes of all collectives.
    #[must_use]
    pub fn bucket_seconds(&self, bucket: &Bucket) -> f64 {
        let cost = self.collective_cost(bucket.kind(), bucket.axes());
        cost.latency_seconds + bucket.bytes(&self.mesh) as f64 * cost.seconds_per_byte
    }

    /// Returns how long each level is busy during some steps of a program, in seconds: latency, and
    /// the bytes of a rank over its share of a link.
    #[must_use]
    pub fn level_seconds(&self, program: &Program, steps: &[Step]) -> Vec<f64> {
        let mut seconds = vec![0.0; self.n_levels()];
        for step in steps {
            let Kernel::Communicate(bucket) = &program.kernels[step.kernel] else { continue };
            for (level, bytes) in self.bytes_per_level(bucket).into_iter().enumerate() {
                if bytes > 0 {
                    let latency = self.latency_seconds(bucket.kind(), level);
                    let per_rank = bytes as f64 / self.mesh.n_ranks() as f64;
                    seconds[level] += latency + per_rank / self.bytes_per_second(level);
                }
            }
        }
        seconds
    }

    /// Returns the latency of a collective at a level: that of each of its exchanges.
    fn latency_seconds(&self, kind: CollectiveKind, level: usize) -> f64 {
        let n_exchanges = match kind {
            CollectiveKind::Slice => 0.0,
            CollectiveKind::ReduceScatter
            | CollectiveKind::AllToAll
            | CollectiveKind::AllGather => 1.0,
            CollectiveKind::AllReduce => 2.0,
        };
        n_exchanges * self.cluster.levels[level].latency_seconds
    }

    /// Returns the time of one step of a program for this mesh, in seconds. A bucket takes
    /// [`Self::bucket_seconds`], and a kernel its roofline time. A slice is a kernel that copies.
    #[must_use]
    pub fn step_seconds(&self, program: &Program, step: &Step) -> f64 {
        let kernel = &program.kernels[step.kernel];
        if let Some(bucket) = kernel.transfer() {
            return self.bucket_seconds(bucket);
        }
        let bytes_of = |buffers: &[usize]| -> u64 {
            let buffers = buffers.iter().map(|&it| program.tables.buffers[it]);
            buffers.map(|it| (it.n_elements * it.dtype.bytes()) as u64).sum()
        };
        let written = bytes_of(&step.results);
        let bytes = match kernel {
            Kernel::Communicate(_) => 2 * written,
            _ => bytes_of(&step.inputs) + written,
        };
        let work =
            KernelWork { kind: kernel.work_kind(), operations: kernel.n_operations(), bytes };
        self.cluster.device.seconds(work, program.tables.precision)
    }

    /// Returns the time of some steps one after another, in seconds, without overlap of collectives
    /// and kernels.
    #[must_use]
    pub fn serial_seconds(&self, program: &Program, steps: &[Step]) -> f64 {
        steps.iter().map(|step| self.step_seconds(program, step)).sum()
    }
}

/// The speed of a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CollectiveCost {
    /// The fixed time, however little is moved, in seconds.
    pub latency_seconds: f64,
    /// The time for each byte, counted over all ranks, in seconds.
    pub seconds_per_byte: f64,
}

/// Returns the number of groups of each level that `n_gpus` GPUs occupy if they are spread evenly.
fn even_counts(levels: &[Level], n_gpus: usize) -> Option<Vec<usize>> {
    let Some((fastest, slower)) = levels.split_last() else {
        return (n_gpus == 1).then(Vec::new);
    };
    let divisors = (1..=fastest.count.min(n_gpus)).rev().filter(|&it| n_gpus.is_multiple_of(it));
    divisors.into_iter().find_map(|count| {
        let mut counts = even_counts(slower, n_gpus / count)?;
        counts.push(count);
        Some(counts)
    })
}

/// An error: a cluster has too few GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyError {
    message: String,
    fitting: usize,
}

impl TopologyError {
    fn new(cluster: &Cluster, n_gpus: usize) -> Self {
        let fitting = cluster.n_gpus();
        let message =
            format!("the cluster `{}` has {fitting} GPUs, fewer than {n_gpus}", cluster.name);
        Self { message, fitting }
    }

    /// Returns the number of GPUs of the cluster.
    #[must_use]
    pub const fn fitting(&self) -> usize {
        self.fitting
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TopologyError {}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::{
        Collective, Combine, DType, Device, Placement, Precision, Shape, Tiling, WorkKind,
    };

    /// Two nodes of six GPUs, three of which share a network card, with numbers that give round
    /// results.
    fn cluster() -> Cluster {
        let level = |name, count, link_bytes_per_second, gpus_per_link, latency_seconds| Level {
            name: Cow::Borrowed(name),
            count,
            link_bytes_per_second,
            gpus_per_link,
            latency_seconds,
        };
        Cluster {
            name: Cow::Borrowed("small"),
            levels: vec![
                level("nodes", 2, 300.0, 3, 0.5),
                level("boards", 2, 100.0, 1, 0.25),
                level("gpus", 3, 1000.0, 1, 0.125),
            ]
            .into(),
            device: Device {
                name: Cow::Borrowed("abacus"),
                f32_flops: 10.0,
                tf32_flops: 20.0,
                bf16_flops: 40.0,
                memory_bytes_per_second: 8.0,
                memory_bytes: 1 << 20,
                launch_seconds: 0.5,
                efficiency: 0.5,
            },
        }
    }

    #[test]
    fn fast_levels_are_filled_first() {
        let sizes = |n_gpus| Topology::new(&cluster(), n_gpus).map(|it| it.mesh().to_string());
        for (n_gpus, expected) in
            [(1, "[]"), (2, "[2]"), (3, "[3]"), (4, "[2, 2]"), (6, "[2, 3]"), (12, "[2, 2, 3]")]
        {
            assert_eq!(sizes(n_gpus).unwrap(), expected, "{n_gpus}");
        }
        let levels = |n_gpus: usize| -> Vec<usize> {
            let topology = Topology::new(&cluster(), n_gpus).unwrap();
            (0..topology.mesh().n_axes()).map(|it| topology.level(it)).collect()
        };
        assert_eq!((levels(2), levels(4), levels(8)), (vec![2], vec![1, 2], vec![0, 1, 2]));
    }

    #[test]
    fn numbers_without_place_are_refused() {
        let error = Topology::new(&cluster(), 13).unwrap_err();
        assert_eq!(error.to_string(), "the cluster `small` has 12 GPUs, fewer than 13");
        assert_eq!(error.fitting(), 12);
    }

    #[test]
    fn numbers_without_an_even_spread_stand_side_by_side() {
        let of = |n_gpus| Topology::new(&cluster(), n_gpus).unwrap();
        let levels = |it: &Topology| -> Vec<usize> {
            (0..it.mesh().n_axes()).map(|axis| it.level(axis)).collect()
        };
        // Five stand on one node, whose boards they cross; ten on both nodes.
        let (five, ten) = (of(5), of(10));
        assert_eq!((levels(&five), five.counts.clone()), (vec![1], vec![1, 2, 3]));
        assert_eq!((levels(&ten), ten.counts.clone()), (vec![0, 0], vec![2, 2, 3]));
        assert_eq!(ten.mesh().to_string(), "[2, 5]");
        assert!((ten.bytes_per_second(0) - 100.0).abs() < 1e-12);
    }

    #[test]
    fn smaller_numbers_are_spread_evenly_or_fill_their_nodes() {
        for (n_gpus, expected) in [
            (1, vec![]),
            (3, vec![]),
            // Four GPUs fill one board and a third of another one.
            (4, vec![3]),
            (5, vec![4, 3]),
            (6, vec![]),
            (8, vec![6]),
            (11, vec![8, 6]),
            (12, vec![]),
        ] {
            assert_eq!(Topology::smaller_numbers(&cluster(), n_gpus), expected, "{n_gpus}");
        }
    }

    /// Returns a collective of a tensor of 1,200 floats that a mesh of twelve ranks splits along
    /// all axes.
    fn gather(axes: &[usize]) -> Bucket {
        let split = Tiling::new(&[Placement::Split(0); 3]);
        let to = axes.iter().fold(split, |it, &axis| it.with(axis, Placement::Replicated));
        Collective {
            kind: CollectiveKind::AllGather,
            dtype: DType::F32,
            combine: Combine::Sum,
            axes: axes.iter().copied().collect::<AxisSet>(),
            shape: Shape::new(&[1200]),
            from: split,
            to,
        }
        .into()
    }

    #[test]
    fn the_slowest_level_decides() {
        let topology = Topology::new(&cluster(), 12).unwrap();
        // A rank has 400 bytes. Over the last axis it receives twice as many, at 1,000 bytes per
        // second.
        assert!((topology.bucket_seconds(&gather(&[2])) - (0.125 + 0.8)).abs() < 1e-12);
        // Over the last two axes it receives 800 bytes from its board, and 1,200 from the other
        // one, at 100 bytes per second.
        assert_eq!(topology.bytes_per_level(&gather(&[1, 2])), [0, 14_400, 9600]);
        assert!((topology.bucket_seconds(&gather(&[1, 2])) - 12.25).abs() < 1e-12);
        // Three GPUs share a card of 300 bytes per second.
        assert!((topology.bucket_seconds(&gather(&[0])) - (0.5 + 4.0)).abs() < 1e-12);
    }

    #[test]
    fn a_bucket_has_one_latency() {
        let topology = Topology::new(&cluster(), 12).unwrap();
        let one = gather(&[2]);
        let collectives = vec![one.collectives[0]; 3].into();
        let three = Bucket { collectives };
        assert_eq!(three.bytes(&topology.mesh()), 3 * one.bytes(&topology.mesh()));
        assert!((topology.bucket_seconds(&three) - (0.125 + 3.0 * 0.8)).abs() < 1e-12);
    }

    #[test]
    fn unused_neighbors_leave_the_link_to_others() {
        let topology = Topology::new(&cluster(), 8).unwrap();
        assert_eq!(topology.mesh().to_string(), "[2, 2, 2]");
        assert!((topology.bytes_per_second(0) - 100.0).abs() < 1e-12);
        let alone = Topology::new(
            &Cluster { levels: cluster().levels[..1].to_vec().into(), ..cluster() },
            2,
        );
        assert!((alone.unwrap().bytes_per_second(0) - 300.0).abs() < 1e-12);
    }

    #[test]
    fn kernels_are_bound_by_arithmetic_or_memory() {
        let device = cluster().device;
        let work = |kind, operations, bytes| KernelWork { kind, operations, bytes };
        let seconds = |work| device.seconds(work, Precision::Bf16);
        assert!((seconds(work(WorkKind::Product, 80, 8)) - (0.5 + 4.0)).abs() < 1e-12);
        assert!((seconds(work(WorkKind::Other, 80, 8)) - (0.5 + 16.0)).abs() < 1e-12);
        assert!((seconds(work(WorkKind::Other, 0, 40)) - (0.5 + 10.0)).abs() < 1e-12);
    }
}
