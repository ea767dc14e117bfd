//! Collectives as movements of elements between ranks.

use std::ops::Range;

use soybean_plan::{Bucket, Collective, CollectiveKind, Kernel, Mesh};

use crate::tile_overlap::TileOverlap;

/// The elements that a rank reads from the inputs of other ranks to compute its result.
pub(crate) enum Movement {
    /// Copies each element of the result from the rank that has it.
    Copy(Vec<(usize, TileOverlap)>),
    /// Combines the rank's own elements from all ranks of the group.
    Scatter { group: Vec<usize>, overlap: TileOverlap },
    /// Combines the rank's share from all ranks of the group, then copies the other shares.
    Reduce { group: Vec<usize>, shares: Vec<Range<usize>> },
}

impl Movement {
    /// Returns the movement of a rank in a collective.
    pub(crate) fn new(collective: &Collective, mesh: &Mesh, rank: usize) -> Self {
        let group = mesh.group(rank, collective.axes);
        let shared = |peer: usize| received(collective, mesh, rank, peer);
        match collective.kind {
            CollectiveKind::Slice => Self::Copy(vec![(rank, shared(rank))]),
            CollectiveKind::AllToAll | CollectiveKind::AllGather => {
                Self::Copy(group.iter().map(|peer| (*peer, shared(*peer))).collect())
            }
            // Partial results have the same layout on all ranks of the group.
            CollectiveKind::ReduceScatter => Self::Scatter { group, overlap: shared(rank) },
            CollectiveKind::AllReduce => match collective.shares(mesh) {
                Some(shares) => Self::Reduce { group, shares },
                None => Self::Scatter { group, overlap: shared(rank) },
            },
        }
    }
}

/// Returns the elements that `receiver` needs from the input of `sender`.
pub(crate) fn received(
    collective: &Collective,
    mesh: &Mesh,
    receiver: usize,
    sender: usize,
) -> TileOverlap {
    let (from, to) = (collective.source(), collective.destination());
    TileOverlap::between(mesh, (&to, receiver), (&from, sender))
}

/// Returns the collectives of a kernel, if it is a bucket.
pub(crate) const fn as_bucket(kernel: &Kernel) -> Option<&Bucket> {
    match kernel {
        Kernel::Communicate(bucket) => Some(bucket),
        _ => None,
    }
}
