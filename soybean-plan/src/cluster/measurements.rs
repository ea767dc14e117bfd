//! Times that were measured on a cluster's devices, and predictions between them.
//!
//! A kernel that was measured is described by its name, its operations and its bytes. A prediction
//! is the roofline of a kernel, times the ratio of measured times to their rooflines. That ratio is
//! the mean of the measured kernels of the same name, weighted by their distance in size.

use std::borrow::Cow;

use super::KernelWork;
use crate::{
    AttentionForm, CollectiveKind, ConvolutionForm, EmbeddingForm, IndexingForm, PoolingForm,
    RankingForm,
};

/// Measured times of steps, kernels and collectives; none by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// The time of a step besides its kernels and collectives, in seconds.
    pub step_seconds: f64,
    /// Kernels of one rank while all ranks run the same kernel.
    pub kernels: Cow<'static, [MeasuredKernel]>,
    /// The speeds of collectives.
    pub collectives: Cow<'static, [MeasuredCollective]>,
}

/// The measured time of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredKernel {
    /// The name, as of [`KernelWork::name`].
    pub name: Cow<'static, str>,
    /// Floating-point operations.
    pub operations: u64,
    /// Bytes read and written, each operand and each result once.
    pub bytes: u64,
    /// The time, in seconds.
    pub seconds: f64,
}

/// The measured speed of a kind of collective in groups of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredCollective {
    /// The kind.
    pub kind: CollectiveKind,
    /// The number of ranks of a group.
    pub n_ranks: usize,
    /// The fixed time, in seconds.
    pub latency_seconds: f64,
    /// The bytes that each rank receives per second after that time.
    pub bytes_per_second: f64,
}

impl Measurements {
    /// Returns the time of a kernel in seconds, given the roofline of works of its kind; `None` if
    /// no kernel of its name was measured.
    ///
    /// The ratio of a measured time to its roofline is interpolated between the measured kernels.
    /// Source: inverse distance weighting, Shepard 1968. The distance is that of the logarithms of
    /// bytes and of operations per byte, which decide whether arithmetic or memory bounds a kernel.
    #[must_use]
    pub fn kernel_seconds(
        &self,
        work: KernelWork,
        roofline: impl Fn(KernelWork) -> f64,
    ) -> Option<f64> {
        let (mut sum, mut weights) = (0.0, 0.0);
        for measured in self.kernels.iter().filter(|it| it.name == work.name) {
            let (operations, bytes) = (measured.operations, measured.bytes);
            let at = KernelWork { operations, bytes, ..work };
            let [across, along] = [0, 1].map(|it| place(work)[it] - place(at)[it]);
            let weight = (across * across + along * along + EXACT).powi(-2);
            sum += weight * (measured.seconds / roofline(at)).ln();
            weights += weight;
        }
        (weights > 0.0).then(|| roofline(work) * (sum / weights).exp())
    }

    /// Returns the speed of a kind of collective in groups of about this many ranks.
    #[must_use]
    pub fn collective(&self, kind: CollectiveKind, n_ranks: usize) -> Option<MeasuredCollective> {
        let distance = |it: &MeasuredCollective| (it.n_ranks as f64 / n_ranks as f64).ln().abs();
        let of_kind = self.collectives.iter().copied().filter(|it| it.kind == kind);
        of_kind.min_by(|one, other| distance(one).total_cmp(&distance(other)))
    }
}

/// Returns the names of all kernels that can be measured: those of [`KernelWork::name`].
pub fn measured_names() -> impl Iterator<Item = &'static str> {
    let convolutions = ConvolutionForm::ALL.iter().map(|it| it.name());
    let poolings = PoolingForm::ALL.iter().map(|it| it.name());
    let embeddings = EmbeddingForm::ALL.iter().map(|it| it.name());
    let indexings = IndexingForm::ALL.iter().map(|it| it.name());
    let rankings = RankingForm::ALL.iter().map(|it| it.name());
    let attentions = AttentionForm::ALL.iter().map(|it| it.name());
    let copies = ["permutation", "padding", "concatenation", CollectiveKind::Slice.name()];
    ["contraction"]
        .into_iter()
        .chain(convolutions)
        .chain(["map", "reduction"])
        .chain(poolings)
        .chain(copies)
        .chain(embeddings)
        .chain(indexings)
        .chain(rankings)
        .chain(attentions)
}

/// The square of a distance below which a measured kernel counts as the predicted one.
const EXACT: f64 = 1e-4;

/// Returns the place of a work in the plane in which kernels are compared.
fn place(work: KernelWork) -> [f64; 2] {
    let [operations, bytes] = [work.operations, work.bytes].map(|it| (it as f64 + 1.0).log2());
    [bytes, INTENSITY * (operations - bytes)]
}

/// The weight of operations per byte beside bytes. The kernels that differ in it are bound by
/// different units, and those that differ in size alone often attain similar speeds.
const INTENSITY: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, Device, Precision, WorkKind};

    fn work(name: &'static str, operations: u64, bytes: u64) -> KernelWork {
        KernelWork { name, kind: WorkKind::Other, operations, bytes }
    }

    fn measured(name: &'static str, operations: u64, bytes: u64, seconds: f64) -> MeasuredKernel {
        MeasuredKernel { name: name.into(), operations, bytes, seconds }
    }

    fn roofline(work: KernelWork) -> f64 {
        1.0 + work.bytes as f64
    }

    #[test]
    fn measured_kernels_are_predicted_as_measured_and_others_between_them() {
        // Twice and four times their rooflines, 65 and 4097 seconds.
        let kernels = vec![measured("map", 64, 64, 130.0), measured("map", 4096, 4096, 16_388.0)];
        let measurements = Measurements { kernels: kernels.into(), ..Measurements::default() };
        let seconds = |it| measurements.kernel_seconds(it, roofline);
        let ratio = |it: KernelWork| seconds(it).unwrap() / roofline(it);
        assert!((seconds(work("map", 64, 64)).unwrap() / 130.0 - 1.0).abs() < 1e-6);
        assert!((seconds(work("map", 4096, 4096)).unwrap() / 16_388.0 - 1.0).abs() < 1e-6);
        // Half way between the ratios 2 and 4 on a logarithmic scale. The tolerance is for the 1
        // that is added to bytes.
        let between = ratio(work("map", 512, 512));
        assert!((between - 8_f64.sqrt()).abs() < 0.05, "{between}");
        // Beyond all that was measured, the mean of the ratios.
        let far = ratio(work("map", 1 << 40, 1 << 40));
        assert!(2.0 < far && far < 4.0, "{far}");
        assert_eq!(seconds(work("contraction", 64, 64)), None);
    }

    #[test]
    fn a_cluster_predicts_kernels_without_measurements_by_their_roofline() {
        let device = Device {
            name: "abacus".into(),
            f32_flops: 2.0,
            tf32_flops: 2.0,
            bf16_flops: 2.0,
            memory_bytes_per_second: 8.0,
            memory_bytes: 1,
            launch_seconds: 0.5,
            efficiency: 1.0,
        };
        let kernels = vec![measured("map", 8, 8, 9.0)].into();
        let measurements = Measurements { kernels, ..Measurements::default() };
        let cluster = Cluster { name: "one".into(), levels: vec![].into(), device, measurements };
        let seconds =
            |name, operations| cluster.kernel_seconds(work(name, operations, 8), Precision::F32);
        // The roofline of the measured kernel is 4.5 seconds, half of its time.
        assert!((seconds("map", 8) - 9.0).abs() < 1e-9);
        assert!((seconds("map", 16) - 17.0).abs() < 1e-9);
        assert!((seconds("reduction", 16) - 8.5).abs() < 1e-9);
    }

    #[test]
    fn the_speed_of_the_nearest_group_counts() {
        let of = |n_ranks, latency_seconds| MeasuredCollective {
            kind: CollectiveKind::AllGather,
            n_ranks,
            latency_seconds,
            bytes_per_second: 1.0,
        };
        let collectives = vec![of(2, 0.25), of(8, 0.5)].into();
        let measurements = Measurements { collectives, ..Measurements::default() };
        let latency = |n_ranks| {
            measurements.collective(CollectiveKind::AllGather, n_ranks).unwrap().latency_seconds
        };
        assert!([2, 3, 8, 64].map(latency) == [0.25, 0.25, 0.5, 0.5]);
        assert_eq!(measurements.collective(CollectiveKind::AllReduce, 2), None);
    }
}
