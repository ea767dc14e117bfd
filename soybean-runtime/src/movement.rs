//! Collectives as movements of elements: what each rank takes from the others.

use std::ops::Range;

use soybean_plan::{Collective, CollectiveKind, Kernel, Mesh};

use crate::tile_overlap::TileOverlap;

/// From which ranks a rank takes which elements of their inputs, for its own result.
pub(crate) enum Movement {
    /// Copies the elements that it needs, each from the rank that has it.
    Copy(Vec<(usize, TileOverlap)>),
    /// Combines the elements that it keeps from all ranks of the group.
    Scatter { group: Vec<usize>, overlap: TileOverlap },
    /// Combines its share from all ranks of the group, then copies the others' shares.
    Reduce { group: Vec<usize>, shares: Vec<Range<usize>> },
}

impl Movement {
    /// The part of a rank in a collective.
    pub(crate) fn new(collective: &Collective, mesh: &Mesh, rank: usize) -> Self {
        let group = mesh.group(rank, collective.axes);
        let shared = |peer: usize| received(collective, mesh, rank, peer);
        match collective.kind {
            CollectiveKind::Slice => Self::Copy(vec![(rank, shared(rank))]),
            CollectiveKind::AllToAll | CollectiveKind::AllGather => {
                Self::Copy(group.iter().map(|peer| (*peer, shared(*peer))).collect())
            }
            // Partial results lie alike on all ranks of the group.
            CollectiveKind::ReduceScatter => Self::Scatter { group, overlap: shared(rank) },
            CollectiveKind::AllReduce => match collective.shares(mesh) {
                Some(shares) => Self::Reduce { group, shares },
                None => Self::Scatter { group, overlap: shared(rank) },
            },
        }
    }
}

/// Which elements of its result `receiver` has from the input of `sender`.
pub(crate) fn received(
    collective: &Collective,
    mesh: &Mesh,
    receiver: usize,
    sender: usize,
) -> TileOverlap {
    let (from, to) = (collective.source(), collective.destination());
    TileOverlap::between(mesh, (&to, receiver), (&from, sender))
}

/// The collective that a kernel is, if it is one.
pub(crate) const fn as_collective(kernel: &Kernel) -> Option<&Collective> {
    match kernel {
        Kernel::Communicate(collective) => Some(collective),
        _ => None,
    }
}
