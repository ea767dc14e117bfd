//! Collectives: how a tensor gets from one tiling to another.

use std::ops::Range;

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

/// Consecutive shares of about equal length that begin at cache lines, as far as there are enough elements.
fn shares(n_elements: usize, n_shares: usize) -> Vec<Range<usize>> {
    const LINE: usize = 16;
    let bound =
        |share: usize| (n_elements * share / n_shares).next_multiple_of(LINE).min(n_elements);
    (0..n_shares).map(|it| bound(it)..bound(it + 1)).collect()
}
