//! The part of a cluster that a mesh occupies, and predicted times there.

use std::fmt;

use super::{Cluster, Device, Level, MeasuredCollective, Measurements};
use crate::{
    AxisSet, Bucket, CollectiveKind, Kernel, Lane, Mesh, Program, Step, StepNeeds, lane, lane_spans,
};

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

    /// Places a mesh on GPUs of a kind that are joined by links of one kind.
    #[must_use]
    pub fn flat(mesh: Mesh, device: Device, link: Level) -> Self {
        let n_ranks = mesh.n_ranks();
        let name = device.name.clone();
        let levels = vec![Level { count: n_ranks, ..link }].into();
        let level_of_axis = vec![0; mesh.n_axes()];
        let measurements = Measurements::default();
        let cluster = Cluster { name, levels, device, measurements };
        Self { cluster, mesh, level_of_axis, counts: vec![n_ranks] }
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
    /// If collectives were measured, the speed is that of the measured group of nearest size.
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
            // Halos come from neighbors: of those, few differ along a slow axis.
            let is_halo = kind == CollectiveKind::HaloExchange;
            let others = axes.iter().filter(|&it| if is_halo { it < axis } else { it > axis });
            let n_across = (self.mesh.size(axis) - 1) * self.mesh.group_size(others.collect());
            shares[self.level(axis)] += n_across as f64 / (group - 1) as f64;
        }
        if let Some(measured) = self.measured(kind, axes) {
            let MeasuredCollective { latency_seconds, bytes_per_second, .. } = measured;
            return CollectiveCost {
                latency_seconds,
                seconds_per_byte: 1.0 / n_ranks / bytes_per_second,
            };
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
                if bytes == 0 {
                    continue;
                }
                let latency = self.latency_seconds(bucket.kind(), level);
                let per_rank = bytes as f64 / self.mesh.n_ranks() as f64;
                seconds[level] += match self.measured(bucket.kind(), bucket.axes()) {
                    Some(it) => it.latency_seconds + per_rank / it.bytes_per_second,
                    None => latency + per_rank / self.bytes_per_second(level),
                };
            }
        }
        seconds
    }

    /// Returns the measured speed of collectives of this kind along these axes, if the cluster's
    /// [`Measurements`](super::Measurements) have one. Halo exchanges are not measured. They send
    /// messages from rank to rank as all-to-alls do, and get their speed.
    #[must_use]
    pub fn measured(&self, kind: CollectiveKind, axes: AxisSet) -> Option<MeasuredCollective> {
        let kind = match kind {
            CollectiveKind::HaloExchange => CollectiveKind::AllToAll,
            CollectiveKind::Slice
            | CollectiveKind::ReduceScatter
            | CollectiveKind::AllReduce
            | CollectiveKind::AllToAll
            | CollectiveKind::AllGather => kind,
        };
        self.cluster.measurements.collective(kind, self.mesh.group_size(axes))
    }

    /// Returns the latency of a collective at a level: that of each of its exchanges.
    fn latency_seconds(&self, kind: CollectiveKind, level: usize) -> f64 {
        let n_exchanges = match kind {
            CollectiveKind::Slice => 0.0,
            CollectiveKind::ReduceScatter
            | CollectiveKind::AllToAll
            | CollectiveKind::AllGather
            | CollectiveKind::HaloExchange => 1.0,
            CollectiveKind::AllReduce => 2.0,
        };
        n_exchanges * self.cluster.levels[level].latency_seconds
    }

    /// Returns the time of one step of a program for this mesh, in seconds. A bucket takes
    /// [`Self::bucket_seconds`], and a kernel [`Cluster::kernel_seconds`]. A slice is a kernel
    /// that copies.
    #[must_use]
    pub fn step_seconds(&self, program: &Program, step: &Step) -> f64 {
        let kernel = &program.kernels[step.kernel];
        if let Some(bucket) = kernel.transfer() {
            return self.bucket_seconds(bucket);
        }
        self.cluster.kernel_seconds(program.work(step), program.tables.precision)
    }

    /// Returns the lane and the time of each of some steps of a program.
    #[must_use]
    pub fn durations(&self, program: &Program, steps: &[Step]) -> Vec<(Lane, f64)> {
        let duration =
            |it: &Step| (lane(&program.kernels[it.kernel]), self.step_seconds(program, it));
        steps.iter().map(duration).collect()
    }

    /// Returns the time of some steps in seconds, if collectives run beside kernels. Steps wait for
    /// each other's results, but not for memory. It includes the time that the cluster's
    /// [`Measurements`] have for the whole.
    #[must_use]
    pub fn overlapped_seconds(&self, program: &Program, steps: &[Step]) -> f64 {
        let spans = lane_spans(&StepNeeds::of(steps), &self.durations(program, steps));
        self.cluster.measurements.step_seconds
            + spans.into_iter().map(|it| it[1]).fold(0.0, f64::max)
    }

    /// Returns the time of some steps one after another, in seconds, without overlap of collectives
    /// and kernels. It includes the time that the cluster's [`Measurements`] have for the whole.
    #[must_use]
    pub fn serial_seconds(&self, program: &Program, steps: &[Step]) -> f64 {
        let seconds: f64 = steps.iter().map(|step| self.step_seconds(program, step)).sum();
        self.cluster.measurements.step_seconds + seconds
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
mod tests;
