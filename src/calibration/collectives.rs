//! The collectives that a calibration measures, and the speeds that fit their times.

use soybean_plan::{
    AxisSet, Collective, CollectiveKind, Combine, DType, Halo, MeasuredCollective, Mesh, Placement,
    Shape, Tiling,
};

use super::{timer::Measured, trial::Trial};

/// The elements of a rank before or after a collective, whichever are fewer.
const SIZES: [usize; 5] = [64, 1 << 10, 1 << 13, 1 << 16, 1 << 19];

/// Returns the axes of groups of each size, smallest group first: the fastest axes of the mesh.
pub(super) fn groups(mesh: &Mesh) -> Vec<AxisSet> {
    (0..mesh.n_axes()).rev().map(|first| (first..mesh.n_axes()).collect()).collect()
}

/// A kind of collective in groups of one size, from small to large.
pub(super) struct CollectiveTrials {
    pub(super) kind: CollectiveKind,
    /// The ranks of a group.
    pub(super) n_ranks: usize,
    /// Each trial with the bytes that a rank receives.
    pub(super) times: Vec<(Measured, f64)>,
}

impl CollectiveTrials {
    pub(super) fn new(mesh: &Mesh, kind: CollectiveKind, axes: AxisSet) -> Self {
        let times = SIZES.into_iter().map(|n_elements| trial(mesh, kind, axes, n_elements));
        let times = times.map(|(trial, bytes)| (Measured::new(trial), bytes)).collect();
        Self { kind, n_ranks: mesh.group_size(axes), times }
    }

    /// Removes trials of more bytes, but not the two smallest ones, which a fit needs.
    pub(super) fn keep(&mut self, max_bytes: u64) {
        let mut number = 0;
        self.times.retain(|it| {
            number += 1;
            number <= 2 || it.0.trial.work().bytes <= max_bytes
        });
    }

    /// Returns the speed that fits the measured times.
    pub(super) fn fit(&self) -> MeasuredCollective {
        let times: Vec<_> = self.times.iter().map(|(it, bytes)| [*bytes, it.seconds()]).collect();
        fit(self.kind, self.n_ranks, &times)
    }
}

fn trial(mesh: &Mesh, kind: CollectiveKind, axes: AxisSet, n_elements: usize) -> (Trial, f64) {
    let group = mesh.group_size(axes);
    let whole = match kind {
        CollectiveKind::AllReduce => n_elements,
        CollectiveKind::AllToAll => group * group * n_elements.div_ceil(group),
        CollectiveKind::Slice
        | CollectiveKind::ReduceScatter
        | CollectiveKind::AllGather
        | CollectiveKind::HaloExchange => group * n_elements,
    };
    let (from, to) = match kind {
        CollectiveKind::Slice => (Placement::Replicated, Placement::Split(0)),
        CollectiveKind::ReduceScatter => (Placement::Partial, Placement::Split(0)),
        CollectiveKind::AllReduce => (Placement::Partial, Placement::Replicated),
        CollectiveKind::AllToAll => (Placement::Split(0), Placement::Split(1)),
        CollectiveKind::AllGather => (Placement::Split(0), Placement::Replicated),
        CollectiveKind::HaloExchange => (Placement::Split(0), Placement::Split(0)),
    };
    let halo = match kind {
        CollectiveKind::HaloExchange => Halo::NONE.with(0, [1, 1]),
        CollectiveKind::Slice
        | CollectiveKind::ReduceScatter
        | CollectiveKind::AllReduce
        | CollectiveKind::AllToAll
        | CollectiveKind::AllGather => Halo::NONE,
    };
    let tiling = |placement: Placement| {
        let replicated = Tiling::replicated(mesh.n_axes());
        axes.iter().fold(replicated, |it, axis| it.with(axis, placement))
    };
    let collective = Collective {
        kind,
        dtype: DType::F32,
        combine: Combine::Sum,
        axes,
        shape: Shape::new(&[group, whole / group]),
        from: tiling(from),
        to: tiling(to),
        halo,
    };
    let read = collective.source().local_shape(mesh).n_elements();
    let written = collective.result_shape(mesh).n_elements();
    let bytes = collective.bytes(mesh) as f64 / mesh.n_ranks() as f64;
    (Trial::new(collective, &[read], &[written]), bytes)
}

/// Returns the latency and the bandwidth that fit measured times best: `[bytes, seconds]` of each.
/// The fit is the least sum of squares of relative errors, with a latency and a bandwidth above 0.
fn fit(kind: CollectiveKind, n_ranks: usize, times: &[[f64; 2]]) -> MeasuredCollective {
    // Weights of 1 / seconds^2 turn squares of errors into squares of relative errors.
    let sum = |term: &dyn Fn(f64, f64) -> f64| -> f64 {
        times.iter().map(|&[bytes, seconds]| term(bytes, seconds) / (seconds * seconds)).sum()
    };
    let (n, x, y) = (sum(&|_, _| 1.0), sum(&|bytes, _| bytes), sum(&|_, seconds| seconds));
    let (xx, xy) = (sum(&|bytes, _| bytes * bytes), sum(&|bytes, seconds| bytes * seconds));
    let per_byte = (n * xy - x * y) / (n * xx - x * x);
    let latency = (y - per_byte * x) / n;
    let least = times.iter().map(|it| it[1]).fold(f64::INFINITY, f64::min);
    let (latency, per_byte) = match (latency > 0.0, per_byte > 0.0) {
        (true, true) => (latency, per_byte),
        (false, _) => (least / 100.0, xy / xx),
        (true, false) => (y / n, least / times.iter().map(|it| it[0]).fold(1.0, f64::max)),
    };
    let (latency_seconds, bytes_per_second) = (latency, 1.0 / per_byte);
    MeasuredCollective { kind, n_ranks, latency_seconds, bytes_per_second }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_fitted_exactly_and_impossible_ones_not() {
        let fitted = |times: &[[f64; 2]]| fit(CollectiveKind::AllGather, 2, times);
        let times = [[0.0, 2.0], [10.0, 7.0], [1000.0, 502.0]];
        let found = fitted(&times);
        assert!((found.latency_seconds - 2.0).abs() < 1e-9, "{found:?}");
        assert!((found.bytes_per_second - 2.0).abs() < 1e-9, "{found:?}");
        for times in [[[1.0, 0.1], [10.0, 10.0]], [[1.0, 10.0], [10.0, 0.1]]] {
            let found = fitted(&times);
            assert!(found.latency_seconds > 0.0 && found.bytes_per_second > 0.0, "{found:?}");
        }
    }

    #[test]
    fn collectives_of_every_group_have_the_bytes_that_they_receive() {
        let mesh = Mesh::new(8);
        let sizes: Vec<usize> = groups(&mesh).iter().map(|it| mesh.group_size(*it)).collect();
        assert_eq!(sizes, [2, 4, 8]);
        let bytes = |kind| CollectiveTrials::new(&mesh, kind, groups(&mesh)[1]).times[0].1;
        // Each of four ranks receives 64 floats from the three others, or combines and sends on.
        assert_eq!(bytes(CollectiveKind::AllGather).to_bits(), 768_f64.to_bits());
        assert_eq!(bytes(CollectiveKind::ReduceScatter).to_bits(), 768_f64.to_bits());
        assert_eq!(bytes(CollectiveKind::AllReduce).to_bits(), 384_f64.to_bits());
        assert_eq!(bytes(CollectiveKind::AllToAll).to_bits(), 192_f64.to_bits());
        assert_eq!(bytes(CollectiveKind::Slice).to_bits(), 0_f64.to_bits());
    }
}
