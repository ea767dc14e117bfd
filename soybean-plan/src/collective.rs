//! Collectives: how a tensor gets from one tiling to another.

use std::{fmt, ops::Range};

use crate::{AxisSet, Combine, DType, Mesh, Shape, Tile, Tiling};

/// Two ranks that each combine all elements move as many bytes as two that share them, and wait once less. From this many elements on,
/// the combining costs more than the waiting.
const WORTH_SHARING: usize = 32 * 1024;

/// The kinds of data movement between tilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CollectiveKind {
    /// `r -> P`: each rank keeps its part; no data moves.
    Slice,
    /// `red -> P`: each rank combines its part of everybody's partial results.
    ReduceScatter,
    /// `red -> r`: each rank combines one share of the partial results, then all shares are gathered.
    AllReduce,
    /// `P_i -> P_j`: each rank sends each other one the part that it needs.
    AllToAll,
    /// `P -> r`: each rank receives everybody's part.
    AllGather,
}

impl CollectiveKind {
    /// The name in the text form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slice => "slice",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllReduce => "all-reduce",
            Self::AllToAll => "all-to-all",
            Self::AllGather => "all-gather",
        }
    }

    /// The elements that are moved between ranks, over all `n_ranks` ranks, of which each holds `n_local` before, in groups of `group`.
    #[must_use]
    pub const fn moved(self, n_local: u64, group: u64, n_ranks: u64) -> u64 {
        match self {
            Self::Slice => 0,
            Self::ReduceScatter | Self::AllToAll => n_ranks * n_local / group * (group - 1),
            Self::AllReduce => n_ranks / group * 2 * n_local * (group - 1),
            Self::AllGather => n_ranks * n_local * (group - 1),
        }
    }
}

/// One change of tiling along some axes of the mesh; all ranks that differ only along those take part together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    /// What is done.
    pub kind: CollectiveKind,
    /// The type of the elements.
    pub dtype: DType,
    /// How partial results are combined; without meaning for the kinds that move data only.
    pub combine: Combine,
    /// The axes along which the placement changes.
    pub axes: AxisSet,
    /// The shape of the whole tensor.
    pub shape: Shape,
    /// The tiling before.
    pub from: Tiling,
    /// The tiling after.
    pub to: Tiling,
}

impl Collective {
    /// The tile before.
    #[must_use]
    pub const fn source(&self) -> Tile {
        Tile { shape: self.shape, tiling: self.from }
    }

    /// The tile after.
    #[must_use]
    pub const fn destination(&self) -> Tile {
        Tile { shape: self.shape, tiling: self.to }
    }

    /// The bytes moved between ranks, over all ranks.
    #[must_use]
    pub fn bytes(&self, mesh: &Mesh) -> u64 {
        let n_local = self.source().local_shape(mesh).n_elements() as u64;
        let group = mesh.group_size(self.axes) as u64;
        self.kind.moved(n_local, group, mesh.n_ranks() as u64) * self.dtype.bytes() as u64
    }

    /// The same by axis of the mesh: a transfer counts for the slowest axis along which its two ranks differ.
    #[must_use]
    pub fn bytes_per_axis(&self, mesh: &Mesh) -> Vec<u64> {
        let mut bytes = vec![0; mesh.n_axes()];
        let n_peers = mesh.group_size(self.axes) as u64 - 1;
        for axis in self.axes.iter() {
            let faster: AxisSet = self.axes.iter().filter(|&it| it > axis).collect();
            let n_across = (mesh.size(axis) as u64 - 1) * mesh.group_size(faster) as u64;
            bytes[axis] = self.bytes(mesh) / n_peers * n_across;
        }
        bytes
    }

    /// For an all-reduce the elements that each rank of the group combines before it gathers the others' shares; none where each rank combines all elements for itself, and for
    /// the other kinds.
    #[must_use]
    pub fn shares(&self, mesh: &Mesh) -> Option<Vec<Range<usize>>> {
        let n_elements = self.source().local_shape(mesh).n_elements();
        let n_ranks = mesh.group_size(self.axes);
        let is_shared =
            self.kind == CollectiveKind::AllReduce && !(n_ranks == 2 && n_elements < WORTH_SHARING);
        is_shared.then(|| shares(n_elements, n_ranks))
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} -> {}", self.kind.name(), self.shape, self.from, self.to)
    }
}

/// Consecutive shares of about equal length that begin at cache lines, as far as there are enough elements.
fn shares(n_elements: usize, n_shares: usize) -> Vec<Range<usize>> {
    const LINE: usize = 16;
    let bound =
        |share: usize| (n_elements * share / n_shares).next_multiple_of(LINE).min(n_elements);
    (0..n_shares).map(|it| bound(it)..bound(it + 1)).collect()
}
